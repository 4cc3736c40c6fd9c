// SPDX-License-Identifier: Apache-2.0

// Package lab makes network namespaces, links, servers and raw packets for tests,
// benchmarks and the demo. It needs root. Everything it makes belongs to a Namespace and
// goes when that is closed; what a killed process left behind goes when the next one
// makes its first namespace.
//
// The package does not import testing: package nettest ties it to a test's life.
package lab
