// SPDX-License-Identifier: Apache-2.0

package main

// overloadExperiments are those with more load than a server can take, and what Narthex costs as
// things grow.
var overloadExperiments = []experiment{
	{"fig11", (*suite).fig11},
	{"collapse", (*suite).collapse},
	{"scale", (*suite).scale},
}
