// SPDX-License-Identifier: Apache-2.0

package http

import "narthex/test/twin"

// Step is what a scan ends with.
type Step = twin.Step

const (
	More = twin.More
	End  = twin.End
	Lost = twin.Lost
)

// Framing is what a request's head says of its framing.
type Framing struct {
	Length                                               uint64
	Closes, Chunked, Upgrade, Expect, Head, H2C, Endless bool
}

// Result is what is known of the bytes of a connection.
type Result struct {
	Step
	Used    int     // bytes, up to the end of the head, or of chunks behind it; 0 if it is lost
	Framing Framing // of a head that has ended
	Head    int     // bytes of it
	InBody  bool    // it has ended, and its chunks go on
	Line    bool    // its first line was read; false if it is lost
	Preface bool    // it is lost, for it is HTTP/2's
}

// Answer is what is known of the bytes of a response.
type Answer struct {
	Step
	Used          int    // bytes, up to the end of the head, or of chunks behind it; 0 if it is lost
	Status        int    // 0: not known yet
	Ended         bool   // the head has; the rest says nothing before
	Chunked       bool   // the body comes in chunks
	Sized         bool   // it has a Content-Length
	Length        uint64 // that; 0 if it is more than is followed
	Closes, Keeps bool   // what it says of the connection
	Label         Label  // what Narthex-Class says
}

// Label is what an application says of its client; the zero Label is nothing.
type Label struct {
	Class uint32 // FNV-1a of the class's name
	Lasts int    // seconds for which it is the client's
}

// mostLabelLasts is the most that is read, in seconds.
const mostLabelLasts = 720 * 3600
