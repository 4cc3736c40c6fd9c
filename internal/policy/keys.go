// SPDX-License-Identifier: Apache-2.0

package policy

import "slices"

// form is a kind of mapping in a policy. The decoder knows a mapping's keys by it, and Schema
// describes them by it, so that the two cannot differ.
type form struct {
	what   string // names it in errors, with its article
	doc    string // what it is, in sentences; empty of what a key says itself
	keys   []key
	oneOf  []string            // keys of which there has to be one at least
	beside map[string][]string // what a key means nothing without
	filled bool                // it has a key at least
}

// key is a key of a form.
type key struct {
	name     string
	doc      string // what it means, in sentences
	value    *schema
	required bool
	def      any    // the value that leaving it out stands for, if it is one that could be written
	defText  string // else what leaving it out means, in words
	examples []any
}

// names lists the keys.
func (f *form) names() []string {
	names := make([]string, len(f.keys))
	for i := range f.keys {
		names[i] = f.keys[i].name
	}
	return names
}

// inside returns the key whose value is a mapping that has such a key, "" for none.
func (f *form) inside(name string) string {
	for i := range f.keys {
		for _, v := range append([]*schema{f.keys[i].value}, f.keys[i].value.AnyOf...) {
			if slices.ContainsFunc(v.Properties, func(p schemaKey) bool { return p.name == name }) {
				return f.keys[i].name
			}
		}
	}
	return ""
}

// has reports whether there is such a key.
func (f *form) has(name string) bool {
	for i := range f.keys {
		if f.keys[i].name == name {
			return true
		}
	}
	return false
}

// The words of a policy.
var (
	xdpModes       = []XDPMode{XDPAuto, XDPNative, XDPGeneric, XDPOff}
	protocols      = []Protocol{HTTP, TLS, TCP}
	serviceEnds    = []ServiceEnd{EndAuto, EndFirstByte, EndClose, EndLastByte}
	h2cs           = []H2C{H2CIgnore, H2CPass, H2CReject}
	labelWays      = []string{"header", "socket"} // in the order of Labels
	modes          = []string{"enforce", "shadow"}
	overs          = []Over{OverReject, OverDrop, OverDemote}
	whens          = []string{WhenAlways.String(), WhenOverload.String(), WhenRejecting.String(), WhenFlooded.String()}
	sharers        = []string{"rule", "source"}
	requestSharers = []string{"rule", "source", "host"}

	connectionActions = []string{"drop", "pass"}
	requestActions    = []string{"drop", "reject", "pass"}
)

// policyForm is the file.
var policyForm = form{
	what: "a policy",
	doc:  "A policy of Narthex: which servers to protect, and what becomes of the connections and requests to them. `narthex check FILE` says what it means.",
	keys: []key{
		{name: "version", required: true, value: oneOf([]any{1, "1"}), doc: "The version of this form of policy."},
		{
			name: "services", required: true, value: tableOf(&serviceForm, MaxServices, true),
			doc: "The servers to protect.",
		},
		{
			name: "classes", value: tableOf(&classForm, MaxClasses, false), defText: "one class named default",
			doc: "Levels of priority in the waiting room. Rules give them to connections and requests.",
		},
		{
			name: "default_class", value: nameValue(), defText: "the class of lowest priority",
			doc: "The class of whatever no rule gives one.",
		},
		{
			name: "connections", value: tableOf(&connectionForm, MaxRules, false), defText: "none, every SYN passes",
			doc: "Rules on connections, by who opens them. The first that matches a SYN decides.",
		},
		{
			name: "lists", value: listsValue(), defText: "none",
			doc: "Files of addresses, by name, which rules have as @NAME in from. They are read anew when they change.",
		},
		{
			name: "answers", value: answersValue(), defText: "none",
			doc: "What is said to who is refused, by name. Services and request rules name them.",
		},
		{
			name: "pools", value: tableOf(&poolForm, MaxServices, false), defText: "none, each service has places of its own",
			doc: "What several services share: one server behind them, or one machine for several tenants.",
		},
		{
			name: "requests", value: tableOf(&requestForm, MaxRules, false), defText: "none, every request takes its turn",
			doc: "Rules on requests, by what they say. The first that matches a request decides. They see requests of http services and the ClientHellos of tls services.",
		},
	},
}

var listForm = form{
	what: "a list",
	doc:  "A file with an address, a prefix or FIRST-LAST a line, and comments behind #; or JSON as operators publish their addresses.",
	keys: []key{
		{name: "file", required: true, value: fileValue(), examples: []any{"crawlers.txt"}, doc: "The file; a relative path is that from the policy."},
		{name: "max", value: whole(1, MaxListEntries), def: defaultMax, doc: "Entries that the file has at most. One with more is broken: the last good one stays."},
	},
}

// listsValue is lists by name.
func listsValue() *schema {
	return &schema{
		Type: []string{"object", "null"}, PropertyNames: &schema{Pattern: nameForm.String(), MaxLength: MaxNameBytes}, Additional: object(&listForm),
	}
}

var classForm = form{
	what: "a class",
	doc:  "A level of priority. While a more important class has somebody waiting who may go, others wait.",
	keys: []key{
		{name: "name", required: true, value: nameValue(), doc: "A name of your choice, by which rules give the class."},
		{name: "priority", required: true, value: whole(1, maxPriority), doc: "1 is the most important. No two classes have the same."},
		{
			name: "reserve", value: percentValue(), defText: "none", examples: []any{"10%"},
			doc: "Guaranteed share of the admissions while the class has requests waiting, so that more important ones cannot starve it. All classes together have at most 100%.",
		},
		{
			name: "max", value: whole(1, maxConcurrency), defText: "no bound",
			doc: "How many requests of the class may be in service at once, in each service (tls, tcp: connections).",
		},
		{
			name: "stall", value: durationValue(), defText: "no bound", examples: []any{"1s"},
			doc: "While others wait, a client that keeps a worker waiting for so long is reset: it does not take what the server writes, or leaves out a part of its body. Of http services, 200ms to 10m.",
		},
		{
			name: "fair", value: anyOf(oneOf(fairs), object(&fairForm)), defText: "{v4: 24, v6: 48}", examples: []any{"source", map[string]string{"cookie": "session"}},
			doc: "Between whom places are divided evenly while requests of the class wait: source (each IPv4 address and IPv6 /64), prefixes of other lengths, or none (in order of arrival). {cookie: NAME}, {header: NAME} or host: what each IPv4 /24 and IPv6 /48 has is divided between the values of that.",
		},
		{
			name: "known", value: durationValue(), defText: "nobody does", examples: []any{"10m"},
			doc: "For how long a source (an IPv4 address, an IPv6 /64) that got a complete answer below 400 goes ahead of others of the class that wait, for 50 requests. Of http services, 10s to 24h.",
		},
	},
}

var fairForm = form{
	what: "fair", filled: true,
	keys: []key{
		{name: "v4", value: whole(1, 32), def: FairDefault.V4, doc: "Length of the IPv4 prefix that has one share."},
		{name: "v6", value: whole(1, 128), def: FairDefault.V6, doc: "Length of the IPv6 prefix that has one share."},
		{name: "header", value: headerName(), defText: "none", doc: "Header whose values divide the share of their prefix, by name, without case. Goes with no other key."},
		{name: "cookie", value: tokenValue(), defText: "none", doc: "Cookie whose values divide the share of their prefix, by name. Goes with no other key."},
	},
}
