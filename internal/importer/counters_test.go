// SPDX-License-Identifier: Apache-2.0

package importer

import "testing"

// TestCounters checks that no limit of HAProxy is lost without a word, wherever it stands.
func TestCounters(t *testing.T) {
	const frontend = "frontend f\n mode http\n bind :80\n stick-table type ip size 1 store http_req_rate(1s),conn_rate(1s)\n "
	const elsewhere = "counters are carried over where a frontend or listen section refuses by a rate"
	testLines(t, []lineTest{
		{"in a backend", HAProxy, frontend + "default_backend b\nbackend b\n http-request deny if { sc_http_req_rate(0) gt 7 }", []string{"gt 7 }: " + elsewhere}, nil},
		{"by a named test", HAProxy, frontend + "default_backend b\nbackend b\n acl fast sc0_http_req_rate gt 7\n http-request deny if fast", []string{"file:8: http-request deny if fast: " + elsewhere}, []string{"file:7:"}},
		{"of contents", HAProxy, frontend + "tcp-request content reject if { sc_conn_rate(0) gt 7 }", []string{"gt 7 }: nothing is tracked as sc0 here"}, nil},
		{"choice of a backend", HAProxy, frontend + "use_backend slow if { src_http_req_rate gt 7 }\nbackend slow", []string{"gt 7 }: " + elsewhere}, nil},
		{"in defaults", HAProxy, "defaults d\n rate-limit sessions 9\n http-request deny if { sc1_http_req_rate gt 7 }\n" + frontend, []string{"gt 7 }: " + elsewhere, "rate-limit sessions 9: HAProxy lets new connections wait"}, nil},
		{"other counters", HAProxy, frontend + "http-request deny if { src_conn_cur gt 7 }\n http-request deny if { sc0_get_gpc0 gt 8 }\n http-request deny if { src,table_http_err_rate(f) gt 9 }", []string{"gt 7 }: the table does not store conn_cur", `gt 8": rules do not ask for`, "gt 9"}, nil},
		{"by a variable", HAProxy, frontend + "http-request set-var(txn.r) sc_http_req_rate(0)\n http-request deny if { var(txn.r) -m int gt 7 }", []string{"sc_http_req_rate(0): " + elsewhere}, nil},
		{"of a whole proxy", HAProxy, frontend + "http-request deny if { be_conn(b) gt 200 }\n http-request deny if { fe_sess_rate gt 100 }\n http-request deny if { queue(b) gt 10 }\n http-request deny if { avg_queue(b) gt 11 }\n http-request deny if { srv_conn(b/s) gt 12 }\nbackend b",
			[]string{"gt 200 }: ", "gt 100 }: ", "gt 10 }: ", "gt 11 }: ", "gt 12 }: "}, nil},
		{"no counters", HAProxy, frontend + "http-request deny if { src_port lt 1024 }\n log-format %[src_http_req_rate]", nil, []string{"Not carried over"}},
		{"carried over once", HAProxy, frontend + "acl fast src_http_req_rate gt 7\n http-request deny deny_status 429 if fast", []string{"rate: 7/s"}, []string{elsewhere, "answer"}},
		{"allowed before", HAProxy, frontend + "http-request allow if { path /free }\n http-request deny if { src_http_req_rate gt 7 }", []string{"HAProxy asks none of the rates and classes after it", "rate: 7/s"}, nil},
		{"allowed after", HAProxy, frontend + "http-request deny if { src_http_req_rate gt 7 }\n http-request allow", []string{"rate: 7/s"}, []string{"HAProxy asks none"}},
		{"statuses", HAProxy, frontend + "http-request deny if { src_http_req_rate gt 7 }", []string{"answer: {status: 403}"}, nil},
		{"status of a tarpit", HAProxy, frontend + "http-request tarpit if { src_http_req_rate gt 7 }", []string{"answer: {status: 500}"}, nil},
		{"status of an answer", HAProxy, frontend + "http-request return if { src_http_req_rate gt 7 }", []string{"HAProxy answers 200"}, []string{"    reject:"}},
		{"address from a header", HAProxy, frontend + "http-request set-src hdr(x-forwarded-for)", []string{"trusted_proxies"}, nil},
		{"two services of one backend", HAProxy, "frontend a\n mode http\n bind :80\n default_backend x\nfrontend b\n mode http\n bind :81\n default_backend x\nbackend x\n server s h:1 maxconn 9",
			[]string{"concurrency: 9\n    mode: shadow\n  - name: b\n    listen: \"*:81\"\n    protocol: http\n    mode", "service b: its requests go to backend x, too"}, nil},
		{"a drop behind an accept behind a rate", HAProxy, frontend + "tcp-request connection reject if { src_conn_rate gt 7 }\n tcp-request connection accept if { src 10.0.0.0/8 }\n tcp-request connection reject if { src 10.1.0.0/16 }", []string{"a rate above it decides first: rule conn-rate"}, nil},
		{"a drop goes before a rate and its exception", HAProxy, frontend + "tcp-request connection reject if { src_conn_rate gt 7 } !{ src 10.0.0.0/8 }\n tcp-request connection reject if { src 10.1.0.0/16 }", []string{"action: drop}\n  # file:5\n  - {name: exempt"}, []string{"decides first"}},
	})
}
