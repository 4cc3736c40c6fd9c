// SPDX-License-Identifier: Apache-2.0

package reading

// Browsers are heads as browsers, tools and libraries send them.
var Browsers = []string{
	// Firefox
	"GET /shop/item?id=4711 HTTP/1.1\r\nHost: www.example.org\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n" +
		"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Language: en-GB,en;q=0.7,de;q=0.3\r\nAccept-Encoding: gzip, deflate\r\n" +
		"Referer: http://www.example.org/shop/\r\nDNT: 1\r\nSec-GPC: 1\r\nConnection: keep-alive\r\nCookie: session=4c2b5f; theme=dark; _ga=GA1.2.123.456\r\nUpgrade-Insecure-Requests: 1\r\nPriority: u=0, i\r\n\r\n",
	// Chrome
	"GET / HTTP/1.1\r\nHost: www.example.org:8080\r\nConnection: keep-alive\r\nCache-Control: max-age=0\r\nsec-ch-ua: \"Chromium\";v=\"142\", \"Not_A Brand\";v=\"99\"\r\nsec-ch-ua-mobile: ?0\r\nsec-ch-ua-platform: \"Linux\"\r\n" +
		"Upgrade-Insecure-Requests: 1\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36\r\n" +
		"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7\r\nSec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-User: ?1\r\nSec-Fetch-Dest: document\r\n" +
		"Accept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: en-US,en;q=0.9\r\nIf-None-Match: W/\"5e-19a\"\r\nIf-Modified-Since: Mon, 23 Nov 2026 10:00:00 GMT\r\n\r\n",
	// Chrome, for what a page fetches
	"GET /api/v1/items?sort=price&filter=%5Bnew%5D HTTP/1.1\r\nHost: localhost:3000\r\nConnection: keep-alive\r\nsec-ch-ua-platform: \"Windows\"\r\nUser-Agent: Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36 Edg/142.0.0.0\r\n" +
		"Accept: */*\r\nOrigin: http://localhost:8000\r\nSec-Fetch-Site: same-site\r\nSec-Fetch-Mode: cors\r\nSec-Fetch-Dest: empty\r\nReferer: http://localhost:8000/\r\nAccept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: de-DE,de;q=0.9\r\n\r\n",
	// Safari
	"GET /img/logo.png HTTP/1.1\r\nHost: www.example.org\r\nAccept: image/webp,image/avif,image/jxl,image/heic,image/heic-sequence,video/*;q=0.8,image/png,image/svg+xml,image/*;q=0.8,*/*;q=0.5\r\nConnection: keep-alive\r\nCookie: a=b\r\n" +
		"User-Agent: Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.6 Mobile/15E148 Safari/604.1\r\nAccept-Language: fr-FR,fr;q=0.9\r\nReferer: http://www.example.org/\r\nAccept-Encoding: gzip, deflate\r\n\r\n",
	// Chrome, a form
	"POST /login HTTP/1.1\r\nHost: www.example.org\r\nConnection: keep-alive\r\nContent-Length: 0\r\nCache-Control: max-age=0\r\nOrigin: null\r\nContent-Type: application/x-www-form-urlencoded\r\nUpgrade-Insecure-Requests: 1\r\n" +
		"User-Agent: Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Mobile Safari/537.36\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate\r\n\r\n",
	// curl, wget, ab, wrk, Go, Python, Node, Java
	"GET /index.html HTTP/1.1\r\nHost: www.example.org\r\nUser-Agent: curl/8.14.1\r\nAccept: */*\r\n\r\n",
	"GET /pub/file.tar.gz HTTP/1.1\r\nHost: www.example.org\r\nUser-Agent: Wget/1.25.0\r\nAccept: */*\r\nAccept-Encoding: identity\r\nConnection: Keep-Alive\r\n\r\n",
	"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\nHost: 127.0.0.1\r\nUser-Agent: ApacheBench/2.3\r\nAccept: */*\r\n\r\n",
	"GET / HTTP/1.0\r\nHost: 127.0.0.1\r\nUser-Agent: ApacheBench/2.3\r\nAccept: */*\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n",
	"GET /healthz HTTP/1.1\r\nHost: 10.0.0.7:8080\r\nUser-Agent: kube-probe/1.34\r\nAccept: */*\r\nConnection: close\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: example.org\r\nUser-Agent: Go-http-client/1.1\r\nAccept-Encoding: gzip\r\n\r\n",
	"GET /simple/ HTTP/1.1\r\nHost: example.org\r\nUser-Agent: python-requests/2.32.5\r\nAccept-Encoding: gzip, deflate, br\r\nAccept: */*\r\nConnection: keep-alive\r\n\r\n",
	"GET / HTTP/1.1\r\nhost: example.org\r\nconnection: keep-alive\r\naccept: */*\r\naccept-language: *\r\nsec-fetch-mode: cors\r\nuser-agent: node\r\naccept-encoding: gzip, deflate\r\n\r\n",
	"GET /a HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nHost: example.org\r\nHTTP2-Settings: AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA\r\nUser-Agent: Java-http-client/21.0.8\r\n\r\n",
	"GET /chat HTTP/1.1\r\nHost: www.example.org\r\nConnection: Upgrade\r\nPragma: no-cache\r\nCache-Control: no-cache\r\nUpgrade: websocket\r\nOrigin: http://www.example.org\r\nSec-WebSocket-Version: 13\r\nAccept-Encoding: gzip, deflate\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\r\n",
	// search engines
	"GET /robots.txt HTTP/1.1\r\nHost: www.example.org\r\nConnection: keep-alive\r\nAccept: text/plain,text/html,*/*\r\nFrom: googlebot(at)googlebot.com\r\nUser-Agent: Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)\r\nAccept-Encoding: gzip, deflate, br\r\n\r\n",
}
