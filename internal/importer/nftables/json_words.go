// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"strconv"
	"strings"
)

func limitWords(o object) []token {
	if unit, ok := o["rate_unit"]; ok && unit != "packets" {
		return said("limit", "rate", "bytes")
	}
	out := said("limit", "rate")
	if o["inv"] == true {
		out = append(out, said("over")...)
	}
	out = append(out, said(fmt.Sprintf("%v/%v", number(o["rate"]), o["per"]))...)
	if o["burst"] != nil {
		out = append(out, said("burst", number(o["burst"]), "packets")...)
	}
	return out
}

func number(v any) string {
	f, _ := v.(float64)
	return strconv.FormatFloat(f, 'f', -1, 64)
}

// field writes what is compared, with its mask.
func field(v any) ([]token, bool) {
	o, ok := v.(object)
	if !ok {
		return nil, false
	}
	for _, kind := range []string{"payload", "meta", "ct"} {
		if of, ok := o[kind].(object); ok {
			protocol, name := fmt.Sprint(of["protocol"]), fmt.Sprint(of["field"])
			if kind != "payload" {
				protocol, name = kind, fmt.Sprint(of["key"])
			}
			return said(protocol, name), true
		}
	}
	if and, ok := o["&"].([]any); ok && len(and) == 2 {
		out, ok := field(and[0])
		mask := texts([]any{and[1]})
		return append(out, said(append([]string{"&"}, mask...)...)...), ok && len(mask) == 1
	}
	return nil, false
}

func braced(list []string) []token {
	out := said("{")
	for i, t := range list {
		if i > 0 {
			out = append(out, said(",")...)
		}
		out = append(out, token{text: t})
	}
	return append(out, said("}")...)
}

// said makes tokens of words; those of one byte that are no words are signs.
func said(words ...string) []token {
	var out []token
	for _, w := range words {
		out = append(out, token{text: w, sign: len(w) > 0 && strings.ContainsAny(w, "{},=()|&!<>") && len(w) <= 2})
	}
	return out
}
