// SPDX-License-Identifier: Apache-2.0

// Package devices tests the real command on the kinds of network devices that stock kernels have as
// modules, and beside firewall rules. Its tests have the build tag vm, for they are run inside a
// virtual machine: they load modules, which not every kernel lets them.
package devices
