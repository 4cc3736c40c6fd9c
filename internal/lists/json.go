// SPDX-License-Identifier: Apache-2.0

package lists

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Keys under which operators publish addresses: of search engines and Google's cloud (ipv4Prefix), of AWS
// (ip_prefix), Azure (addressPrefixes), Cloudflare (ipv4_cidrs), Fastly (addresses) and others. Case does not
// count, nor do underscores and hyphens.
var addressKeys = map[string]bool{
	"ipv4prefix": true, "ipv6prefix": true, "ipprefix": true, "prefix": true, "prefixes": true, "ipv4prefixes": true, "ipv6prefixes": true,
	"addressprefix": true, "addressprefixes": true, "cidr": true, "cidrs": true, "ipv4cidr": true, "ipv6cidr": true, "ipv4cidrs": true, "ipv6cidrs": true,
	"address": true, "addresses": true, "ipv4addresses": true, "ipv6addresses": true, "ip": true, "ips": true, "ipv4": true, "ipv6": true, "iprange": true, "ipranges": true, "ranges": true,
}

func isAddressKey(key string) bool {
	return addressKeys[strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(key))]
}

// json reads texts under the keys above, and those in a list that is the whole document.
func (r *reader) json(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	line, counted := 1, 0
	at := func() int {
		to := int(min(d.InputOffset(), int64(len(data))))
		line += bytes.Count(data[counted:to], []byte("\n"))
		counted = to
		return line
	}
	type level struct {
		object, key bool // in an object: a key comes next
		wanted      bool // texts are addresses
	}
	stack := []level{{wanted: true}}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) && len(stack) == 1 {
			break
		}
		if errors.Is(err, io.EOF) {
			return &Error{r.file, at(), "the file ends in the middle, as after a download that was cut off"}
		}
		if err != nil {
			return &Error{r.file, at(), fmt.Sprintf("this is no JSON: %v", err)}
		}
		top := &stack[len(stack)-1]
		switch token := token.(type) {
		case json.Delim:
			switch token {
			case '{':
				stack = append(stack, level{object: true, key: true})
			case '[':
				stack = append(stack, level{wanted: top.wanted})
			default:
				stack = stack[:len(stack)-1]
				stack[len(stack)-1].key = true
			}
			continue
		case string:
			if top.object && top.key {
				top.wanted, top.key = isAddressKey(token), false
				continue
			}
			if top.wanted {
				if err := r.entry(token, at()); err != nil {
					return err
				}
			}
		}
		top.key = true
	}
	if r.list.Entries == 0 && !bytes.HasPrefix(bytes.TrimSpace(data), []byte("[")) {
		return &Error{r.file, 1, `no addresses: they are looked for in a list of texts, and under keys as "ipv4Prefix", "ip_prefix", "prefixes", "cidrs" or "addresses"`}
	}
	return nil
}
