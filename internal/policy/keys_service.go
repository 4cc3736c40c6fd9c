// SPDX-License-Identifier: Apache-2.0

package policy

var serviceForm = form{
	what: "a service",
	doc:  "A server to protect: where it listens, how much it may have to do at once, and who waits for how long.",
	keys: []key{
		{name: "name", required: true, value: nameValue(), doc: "A name of your choice, by which rules and commands name the service."},
		{
			name: "listen", required: true, value: listOf(listenValue()), examples: []any{"*:80", "192.0.2.1:80", "[2001:db8::1]:8080"},
			doc: "Local addresses and ports at which the server listens, in quotes. * is every local address, IPv4 and IPv6. A specific address wins over *.",
		},
		{
			name: "interfaces", value: listOf(interfaceValue()), defText: "every interface that has an address, but lo", examples: []any{"eth0", "lo"},
			doc: "Interfaces on which its packets arrive. lo is policed only if it is named: name it for an application behind a proxy on the same machine.",
		},
		{
			name: "xdp", value: oneOf(xdpModes), def: string(XDPAuto),
			doc: "How SYN policing attaches: auto is native where the driver has it, else tcx; off is tcx. Attaching in native mode can reset the link of some network cards for a second.",
		},
		{
			name: "protocol", value: oneOf(protocols), def: string(HTTP),
			doc: "What is seen of a connection. http: every request on it. tls: its ClientHello, with the server name. tcp: only the connection; for servers that speak first, too.",
		},
		{
			name: "concurrency", value: anyOf(oneOf([]string{"auto", "unlimited"}), whole(1, maxConcurrency), object(&concurrencyForm)),
			defText: "auto; unlimited for tls and tcp", examples: []any{"auto", 64, map[string]int{"min": 4, "max": 500}},
			doc: "How many requests may be in service at once (tls, tcp: connections); others wait. auto: Narthex finds the number and follows the server. {target: DURATION, min: N, max: N}: the same, with a target of its own and between bounds.",
		},
		{
			name: "overload", value: object(&overloadForm), examples: []any{map[string]string{"rejecting": "5/s", "flooded": "500/s"}},
			doc: "When the levels of overload begin and end, by which rules with when are enforced.",
		},
		{
			name: "pool", value: nameValue(), defText: "none",
			doc: "The pool that it shares places with others in. A concurrency of its own, a number, binds beside the pool's.",
		},
		shareKey,
		{name: "queue", value: object(&queueForm), doc: "Who waits, and for how long."},
		{
			name: "service_ends", value: oneOf(serviceEnds), def: string(EndAuto),
			doc: "When a request has left service. first_byte: with the first byte of its response. close: when its connection is closed. last_byte: when the server has written the last byte. auto: with the first byte, or with the last if request or response ask for the connection to be closed; of tls and tcp, when both sides are silent.",
		},
		{
			name: "reject", value: object(&rejectForm), defText: "503 in overload, 429 over a rate, with Retry-After 1; a reset for tls and tcp",
			doc: "The answer to who is not served: one of answers by its name, a status, or a reset.",
		},
		{
			name: "trusted_proxies", value: listOf(rangeValue()), defText: "none", examples: []any{"10.0.0.0/8", "127.0.0.1"},
			doc: "Proxies whose X-Forwarded-For and PROXY header say who a client is: addresses, prefixes or FIRST-LAST.",
		},
		{
			name: "h2c", value: oneOf(h2cs), def: string(H2CIgnore),
			doc: "HTTP/2 without TLS, of http services. ignore: who offers it is served in HTTP/1.1, who begins with it gets 400. pass: one request until its connection closes. reject: 400.",
		},
		{
			name: "requests_per_connection", value: whole(1, mostRequests), defText: "as many as it likes", examples: []any{100},
			doc: "Requests that a connection of an http service may ask. The GET or HEAD after the last ends it.",
		},
		{
			name: "socket_mark", value: markValue(), defText: "none", examples: []any{256},
			doc: "SO_MARK of accepted sockets of the most important class; one more for each class that follows. Decimal or 0x and hexadecimal.",
		},
		{
			name: "labels", value: distinctOf(oneOf(labelWays)), defText: "none", examples: []any{"header"},
			doc: "How the application may say of which class the next requests are, of an http service. header: of the connection and its client, by Narthex-Class in an answer. socket: of the connection, by its socket's SO_MARK or SO_PRIORITY.",
		},
		{
			name: "mode", value: oneOf(modes), def: "enforce",
			doc: "shadow: decide and count, drop and hold nothing. `narthex status` says what would have been.",
		},
	},
}

var concurrencyForm = form{
	what: "concurrency", filled: true,
	keys: []key{
		{
			name: "target", value: durationValue(), defText: "as long as one takes, at least 1ms", examples: []any{"5ms"},
			doc: "How long requests may wait inside the server before others are held, 1ms to 10s.",
		},
		{name: "min", value: whole(1, maxConcurrency), def: defaultFloor, doc: "The limit never falls below."},
		{name: "max", value: whole(1, maxConcurrency), defText: "no bound", doc: "The limit never rises above."},
	},
}

var overloadForm = form{
	what: "overload", filled: true,
	keys: []key{
		{name: "after", value: durationValue(), def: span(DefaultAfter), doc: "A level begins when it was seen for so long, 50ms to 1m."},
		{
			name: "calm", value: durationValue(), def: span(DefaultCalm),
			doc: "A level ends when it was not seen for so long, 50ms to 10m. The time doubles while the level comes back within 10s, up to 30s.",
		},
		{
			name: "rejecting", value: rateValue(), def: DefaultRejecting.String(),
			doc: "Requests turned away for want of room, per second or minute, from which on the level is rejecting. It ends below half of that.",
		},
		{
			name: "flooded", value: rateValue(), defText: DefaultFlooded.String() + ", if that is more than are answered",
			doc: "The same of the level flooded.",
		},
	},
}

var queueForm = form{
	what: "queue",
	keys: []key{
		{name: "size", value: whole(0, maxQueueSize), def: defaultQueueSize, doc: "How many requests wait at once, at most. 0: nobody waits."},
		{
			name: "max_wait", value: durationValue(), def: span(defaultMaxWait),
			doc: "Who has waited for so long is rejected, 1ms to 1m. Above 5s the kernel may give waiting connections up.",
		},
		{
			name: "max_service", value: durationValue(), def: span(DefaultMaxService),
			doc: "After so long a request whose end was not seen is given up for lost, 1s to 1h. Write more than the longest request takes.",
		},
		{
			name: "target", value: durationValue(), defText: "none", examples: []any{"500ms"},
			doc: "While overload lasts, who has waited for so long is rejected, 1ms to max_wait, so that those who are served have not: in each class for itself.",
		},
	},
}

// answerForm is what is said to who is refused.
var answerForm = form{
	what: "an answer",
	keys: []key{
		{
			name: "status", value: whole(leastStatus, mostStatus), defText: "503 in overload, 429 over a rate",
			doc: "HTTP status of the answer, 400 to 599.",
		},
		{
			name: "retry_after", value: durationValue(), def: span(defaultRetryAfter),
			doc: "The header Retry-After, in whole seconds, at most 24h; never shorter than the rule's block. 0s: no such header.",
		},
		{
			name: "page", value: fileValue(), defText: "Narthex's own for browsers, with 429 and 503",
			doc: "A file whose content is the answer's body, at most 32 KiB; its name is as from the policy's folder. none: no page, not even Narthex's own.",
		},
		{name: "refused_by", value: boolValue(), def: true, doc: "false: without the header Refused-By: narthex."},
	},
}

var rejectForm = form{
	what: "reject",
	keys: append([]key{
		{name: "answer", value: nameValue(), doc: "An answer by its name under answers. It goes with no other key."},
		{name: "reset", value: boolValue(), def: false, doc: "true: a reset (RST) and no answer. It goes with no other key."},
	}, answerForm.keys...),
}

// answersValue is answers by name.
func answersValue() *schema {
	return &schema{Type: []string{"object", "null"}, PropertyNames: &schema{Pattern: nameForm.String(), MaxLength: MaxNameBytes}, Additional: object(&answerForm)}
}

// markValue is a socket mark.
func markValue() *schema {
	return &schema{
		Type: []string{"integer", "string"}, Minimum: number(1), Maximum: number(maxMark), Pattern: `^(0x[0-9A-Fa-f]+|[0-9]+)$`,
		PatternError: "write a number, as 256 or 0x100",
	}
}
