// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"path/filepath"
	"regexp"
)

// RunDir holds the control sockets and the locks of all instances.
const RunDir = "/run/narthex"

// DefaultInstance is the instance of commands that name none.
const DefaultInstance = "default"

var instanceName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$`)

// CheckInstance refuses a name that cannot be an instance's.
func CheckInstance(name string) error {
	if !instanceName.MatchString(name) {
		return fmt.Errorf("%q cannot be the name of an instance: use up to 63 letters, digits, dots, dashes and underscores", name)
	}
	return nil
}

// SocketPath is where an instance's control socket is by default.
func SocketPath(runDir, instance string) string {
	return filepath.Join(runDir, instance+".sock")
}

func lockPath(runDir, instance string) string {
	return filepath.Join(runDir, instance+".lock")
}
