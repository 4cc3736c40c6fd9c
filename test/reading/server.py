# SPDX-License-Identifier: Apache-2.0
#
# Says what it reads of a request.


def serve(environ, start_response):
    environ["wsgi.input"].read()
    keys = ["REQUEST_METHOD", "HTTP_HOST", "HTTP_X_RULE", "PATH_INFO", "RAW_URI"]
    text = ".".join(environ.get(k, "").encode("latin1").hex() for k in keys)
    start_response("200 OK", [("Content-Length", str(len(text)))])
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [text.encode()]
