// SPDX-License-Identifier: Apache-2.0

package policy

import "slices"

// What the keys mean that both kinds of rules have.
const (
	docBurst = "Depth of the token bucket, in tokens; it is full at start. So many may come at once."
	docPer   = "Who shares a bucket. rule: all that the rule matches. source: each IPv4 address and each IPv6 /64 has its own. {v4: N, v6: N}: each prefix of that length."
	docPerOf = docPer + " {cookie: NAME}, {header: NAME}, {query: NAME} or host: each value of that; requests without one share their source's."
	docWhen  = "The level of overload from which on the rule's rate, drop, reject and block are enforced. overload: requests wait at the service. rejecting: it turns requests away. flooded: it turns more away than it answers. The rule matches and gives its class at all times."
)

// does is what a rule has to have one of.
var does = []string{"action", "rate", "limits", "class"}

var connectionForm = form{
	what: "a connection rule", oneOf: does,
	doc:    "A rule on SYNs. All its keys must match; a list matches if one entry does. It needs an action, a rate or a class.",
	beside: map[string][]string{"burst": {"rate"}, "per": {"rate"}},
	keys: []key{
		{name: "name", required: true, value: nameValue(), doc: "A name of your choice, by which `narthex status` counts what the rule did."},
		{
			name: "from", value: distinctOf(fromValue()), defText: "anybody", examples: []any{"10.1.1.0/24", "2001:db8::/32", "10.2.0.5-10.2.0.9", "@crawlers"},
			doc: "Source: addresses, prefixes, FIRST-LAST, or @NAME for those of a list.",
		},
		{name: "from_port", value: distinctOf(portsValue()), defText: "any", examples: []any{"1024-65535"}, doc: "Source port: ports or FIRST-LAST."},
		{name: "to", value: listOf(nameValue()), defText: "all services", doc: "Services, by name."},
		{name: "learned", value: listOf(nameValue()), defText: "not asked", doc: "Classes: matches clients that a request rule with learn has remembered in one of them."},
		{
			name: "action", value: oneOf(connectionActions),
			doc: "drop: the SYN is dropped silently. pass: the connection goes by every control. An action goes with neither rate nor class.",
		},
		{
			name: "rate", value: limitValue(), examples: []any{"20/s", "15/m", "auto"},
			doc: "Connections per second, minute or hour. auto, or {auto: true, min: 5/s, max: 500/s}: in overload only, so many that the service stays at its target. A SYN that finds no token is dropped silently; the client's kernel tries again after a second.",
		},
		{name: "burst", value: whole(1, MaxBurst), defText: "a tenth of a second's rate, at least 1", doc: docBurst},
		{name: "per", value: anyOf(oneOf(sharers), object(&perForm)), def: "rule", doc: docPer},
		{name: "limits", value: limitsValue(&limitForm), defText: "none", examples: []any{[]any{map[string]any{"rate": "100/s"}, map[string]any{"rate": "5/s", "per": "source"}}}, doc: docLimits},
		{name: "when", value: oneOf(whens), def: WhenAlways.String(), doc: docWhen},
		{name: "class", value: nameValue(), defText: "default_class", doc: "Class of the connection, and of its requests in the waiting room."},
	},
}

var requestForm = form{
	what: "a request rule", oneOf: does,
	doc: "A rule on requests. All its keys must match; a list matches if one entry does. It needs an action, a rate or a class. Patterns are globs: " +
		"* stands for any run of characters, / among them, [2-9] for one of a class, \\[ for a bracket; one that begins with * or [ is written in quotes.",
	beside: map[string][]string{"burst": {"rate"}, "per": {"rate"}, "learn": {"class"}},
	keys: slices.Concat([]key{
		{name: "name", required: true, value: nameValue(), doc: "A name of your choice, by which `narthex status` counts what the rule did."},
		{
			name: "from", value: distinctOf(fromValue()), defText: "anybody", examples: []any{"198.51.100.0/24", "@crawlers"},
			doc: "The client: addresses, prefixes, FIRST-LAST, or @NAME for those of a list. Behind trusted_proxies it is the one that is named.",
		},
		{
			name: "to", value: distinctOf(anyOf(nameValue(), destinationValue())), defText: "all services", examples: []any{"web", "192.0.2.0/24:8080"},
			doc: "Services, by name, or where the connection is to: addresses, prefixes or FIRST-LAST, with a port behind a colon or without; * with a port is any address.",
		},
	}, textKeys(), []key{
		{
			name: "cookie", value: pairsOf(tokenForm.String()), defText: "any", examples: []any{map[string]string{"session": "*"}},
			doc: "Cookies by name, with patterns of their values; all must be there. What anybody can write is no proof of who they are.",
		},
		{name: "header", value: headerPairs(), defText: "any", examples: []any{map[string]string{"x-plan": "free"}}, doc: "Headers by name, without case, with patterns of their values; all must be there."},
		{
			name: "query", value: queryValue(), defText: "any", examples: []any{map[string]string{"f.author": "*", "page": "[2-9]*"}},
			doc: "Parameters of the query by name, with patterns of their values, decoded, + a space; all must be there. A list of names: they are there.",
		},
		{name: "parameters", value: object(&parametersForm), defText: "any", examples: []any{map[string]int{"min": 6}}, doc: "How many parameters the query has, empty ones not counted."},
		{
			name: "without", value: object(&withoutForm), defText: "nothing", examples: []any{map[string]string{"header": "referer", "cookie": "session"}},
			doc: "What must not be there, by name. What is there and empty is there.",
		},
		{
			name: "action", value: oneOf(requestActions),
			doc: "drop: the client gets a reset. reject: it gets what the service's reject says. pass: never held, never counted. An action goes with neither rate nor class.",
		},
		{name: "rate", value: limitValue(), examples: []any{"10/s", "15/m", "auto"}, doc: "Requests per second, minute or hour. auto, or {auto: true, min: 5/s, max: 500/s}: in overload only, so many that the service stays at its target. What becomes of one that finds no token, over says."},
		{name: "burst", value: whole(1, MaxBurst), defText: "a tenth of a second's rate, at least 20", doc: docBurst},
		{name: "per", value: anyOf(oneOf(requestSharers), object(&requestPerForm)), def: "rule", examples: []any{map[string]string{"cookie": "session"}}, doc: docPerOf},
		{name: "limits", value: limitsValue(&requestLimitForm), defText: "none", examples: []any{[]any{map[string]any{"rate": "100/s"}, map[string]any{"rate": "5/s", "per": "source"}}}, doc: docLimits},
		{name: "when", value: oneOf(whens), def: WhenAlways.String(), doc: docWhen},
		{
			name: "over", value: oneOf(overs), def: string(OverReject),
			doc: "What becomes of requests over the rate. reject: what the service's reject says. drop: a reset. demote: they go on in the lowest class.",
		},
		{
			name: "block", value: durationValue(), defText: "none", examples: []any{"1m"},
			doc: "After a rejection, all SYNs of that client's address are dropped for so long, 1s to 24h. Everybody behind a NAT has one address.",
		},
		{
			name: "answer", value: anyOf(nameValue(), object(&answerForm)), defText: "what the service's reject says",
			examples: []any{"busy", map[string]any{"status": 429, "retry_after": "10s"}},
			doc:      "What is said to who is rejected: one of answers by its name, or an answer.",
		},
		{name: "class", value: nameValue(), defText: "the connection's", doc: "Class of the request; it overrides the connection rule's."},
		{
			name: "learn", value: durationValue(), defText: "none", examples: []any{"10m"},
			doc: "For so long, 1s to 720h, the client's address is remembered in the rule's class, for connection rules with learned.",
		},
	}),
}

var perForm = form{what: "per", filled: true, keys: prefixKeys}

var prefixKeys = []key{
	{name: "v4", value: whole(1, 32), def: PerSource.V4, doc: "Length of the IPv4 prefix that shares a bucket."},
	{name: "v6", value: whole(1, 128), def: PerSource.V6, doc: "Length of the IPv6 prefix that shares a bucket."},
}

var requestPerForm = form{
	what: "per", filled: true,
	keys: append(slices.Clone(prefixKeys),
		key{name: "header", value: headerName(), defText: "none", doc: "Header whose values have a bucket each, by name, without case. Goes with no other key."},
		key{name: "cookie", value: tokenValue(), defText: "none", doc: "Cookie whose values have a bucket each, by name. Goes with no other key."},
		key{name: "query", value: parameterValue(), defText: "none", doc: "Parameter of the query whose values have a bucket each, by name. Goes with no other key."},
	),
}

var patternForm = form{
	what: "a pattern", doc: "A pattern, or several, and how they are compared.",
	keys: []key{
		{name: "pattern", required: true, value: listOf(globValue()), doc: "Patterns of the value."},
		{name: "ignore_case", value: boolValue(), def: false, doc: "true: letters of ASCII match without case."},
	},
}

var parametersForm = form{
	what: "parameters",
	keys: []key{{name: "min", required: true, value: whole(1, MaxPieces), doc: "The least number."}},
}

var withoutForm = form{
	what: "without", filled: true,
	keys: []key{
		{name: "header", value: distinctOf(tokenValue()), defText: "any", doc: "Headers by name, without case."},
		{name: "cookie", value: distinctOf(tokenValue()), defText: "any", doc: "Cookies by name."},
		{name: "query", value: distinctOf(parameterValue()), defText: "any", doc: "Parameters of the query by name."},
	},
}

// queryValue is patterns of parameters by name, or names.
func queryValue() *schema {
	return anyOf(pairsOf(parameterForm), distinctOf(parameterValue()).AnyOf[0], distinctOf(parameterValue()).AnyOf[1])
}

// ownKeys are headers that have a key of their own.
var ownKeys = &schema{Pattern: "^([Cc][Oo][Oo][Kk][Ii][Ee]|[Hh][Oo][Ss][Tt])$"}

// headerName is the name of a header but for those.
func headerName() *schema {
	s := tokenValue()
	s.Not = ownKeys
	return s
}

// headerPairs are headers by name, but for those that have a key of their own.
func headerPairs() *schema {
	s := pairsOf(tokenForm.String())
	s.PropertyNames.Not = ownKeys
	return s
}
