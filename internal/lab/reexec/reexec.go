// SPDX-License-Identifier: Apache-2.0

// Package reexec runs a function of this executable as a process of its own, whose CPU
// time can be measured and which can be pinned to a core. Packages register functions;
// main and TestMain call Main first.
package reexec

import (
	"encoding/json"
	"fmt"
	"os"
)

// The environment of a process that runs a registered function.
const (
	envName   = "NARTHEX_HELPER"
	envConfig = "NARTHEX_HELPER_CONFIG"
)

var registered = map[string]func(config []byte) error{}

// Register gives a function a name, for use in a package's init. The process ends when
// it returns.
func Register(name string, run func(config []byte) error) { registered[name] = run }

// Main runs the registered function that this process was started for and exits, or
// returns at once if it was not started for any.
func Main() {
	name, ok := os.LookupEnv(envName)
	if !ok {
		return
	}
	run, ok := registered[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "helper %q is not part of this program; unset %s\n", name, envName)
		os.Exit(2)
	}
	if err := run([]byte(os.Getenv(envConfig))); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Command returns the program and the environment of a process that runs the function
// registered under the name. The function gets config as JSON.
func Command(name string, config any) (program string, env []string, err error) {
	b, err := json.Marshal(config)
	if err != nil {
		return "", nil, fmt.Errorf("start helper %q: %w", name, err)
	}
	program, err = os.Executable()
	if err != nil {
		return "", nil, fmt.Errorf("start helper %q: %w", name, err)
	}
	return program, append(os.Environ(), envName+"="+name, envConfig+"="+string(b)), nil
}
