// SPDX-License-Identifier: Apache-2.0

// Package guest is what a virtual machine's first process and those who boot it agree on.
package guest

// Task is what a machine is for.
type Task struct {
	Command []string
	Dir     string   // where the command starts
	Env     []string // beside the few variables that all commands have
	Folders []string // those outside that the command sees, if its other files are of another root; set by the machine
	Share   string   // folder that the command can write for those outside; none if empty
	Modules string   // folder of the kernel's modules; set by the machine
}

// Where in the first files things are.
const (
	TaskFile   = "task.json"
	ModulesDir = "modules"
)

// Numbers of the serial ports that lead outside.
const (
	OutputPort = 1 // what the command prints
	StatusPort = 2 // Begun, and in the end its exit code
)

// Begun is what the first process says before the command.
const Begun = "begun"

// Names of folders outside that the machine mounts.
const (
	RootTag   = "root"
	FolderTag = "folder" // and a number
	ShareTag  = "share"
)
