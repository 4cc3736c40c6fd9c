// SPDX-License-Identifier: Apache-2.0

package tls

import "encoding/binary"

// Of RFC 8446.
const (
	recordHeader  = 5
	messageHeader = 4
	handshake     = 22
	clientHello   = 1
)

// oracleSays puts the records' contents together until there is a ClientHello in them.
func oracleSays(b []byte) Step {
	step, _ := oracleReads(b)
	return step
}

// oracleReads returns where the record with the end of the ClientHello ends, too.
func oracleReads(b []byte) (Step, int) {
	var content []byte
	for at := 0; ; {
		header := b[at:min(at+recordHeader, len(b))]
		if len(header) > 0 && header[0] != handshake || len(header) > 1 && header[1] != 3 {
			return Lost, 0
		}
		if len(header) < recordHeader {
			return More, len(b)
		}
		size := int(binary.BigEndian.Uint16(header[3:]))
		if size == 0 || size > maxRecord {
			return Lost, 0
		}
		at += recordHeader
		here := b[at:min(at+size, len(b))]
		at += size
		content = append(content, here...)
		if len(content) > 0 && content[0] != clientHello {
			return Lost, 0
		}
		if len(here) < size {
			return More, len(b)
		}
		if len(content) >= messageHeader && len(content) >= messageHeader+int(binary.BigEndian.Uint32(content)&0xffffff) {
			return End, at
		}
	}
}
