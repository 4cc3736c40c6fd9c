// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab"
)

const nginxConf = `
daemon off;
user root;
worker_processes 1;
pid %[1]s/nginx.pid;
error_log stderr crit;
worker_rlimit_nofile %[3]d;
events { worker_connections %[3]d; }
http {
	access_log off;
	sendfile on;
	tcp_nopush on;
	keepalive_requests 1000000000;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	server {
		listen %[2]s backlog=4096;
		root %[1]s;
	}
}
`

// nginx starts a server of 8 KB at each of the paths.
func (st *stage) nginx(paths ...string) (*lab.Server, error) {
	dir, err := st.rig.Server.TempDir("nginx")
	if err != nil {
		return nil, err
	}
	most, err := mostKept()
	if err != nil {
		return nil, err
	}
	conf := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, nginxConf, dir, bench.Web(st.rig), most*10/8), 0o600); err != nil {
		return nil, err
	}
	for _, path := range paths {
		file := filepath.Join(dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, lab.FileContent(), 0o600)); err != nil {
			return nil, err
		}
	}
	cmd := st.rig.Server.Command(lab.NginxBinary, "-p", dir, "-c", conf, "-e", "stderr")
	cmd.CPUs = st.ServerCPUs
	return st.rig.Server.Serve(cmd, bench.Web(st.rig))
}
