// SPDX-License-Identifier: Apache-2.0

// Package attack makes hostile traffic in namespaces of package lab, for tests and
// experiments: forged packets, floods, clients that are slow, silent or gone.
//
// Each kind of attack is a struct that says what to do; its Start begins, and returns a Run
// that is stopped, waited for and asked for its counters. What is sent follows from the
// struct and its seed alone; when it is sent follows from the clock and the other side.
// Attacks go over the veth pair of a Link, so only to namespaces that a program has made.
package attack
