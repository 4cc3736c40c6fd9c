// SPDX-License-Identifier: Apache-2.0

package gate

// What worlds have in them that not every version of the gate copes with. A change of the gate
// turns on what it mends; all of them belong on.

// corruptHeads has segments with bytes of heads arrive with wrong checksums, too.
var corruptHeads = true

// loseRejections has packets of the gate's own get lost, too.
var loseRejections = false

// cutHeads has heads come in several segments.
var cutHeads = true

// mergeHeads has heads of several segments come as one, too, and then in several again.
var mergeHeads = false

// mixPartial has packets whose checksums are left to a device come over IPv4 and IPv6.
var mixPartial = false

// becomeStrict has policies turn from lenient to strict, and back.
var becomeStrict = true

// forget has requests given up that are in service for long.
var forget = true

// pauseAnswers has the server pause in its answers to clients that go on asking.
var pauseAnswers = true

// lookLate has flows looked at by the packets that come, and not before by the daemon.
var lookLate = true

// strayResets has the stack reset, as Linux does, what acknowledges another thing than its SYN-ACK.
var strayResets = true
