// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"time"

	"narthex/internal/adapt"
	"narthex/internal/api"
	"narthex/internal/policy"
)

// shownChanges is how many changes of a limit fit beside what else there is of a service.
const shownChanges = 3

// printAdaptation says what has set the limit of a service, and how it has changed.
func printAdaptation(b *strings.Builder, s api.ServiceStatus) {
	if a := s.Adaptation; a != nil && (a.Auto || a.Overload || a.Closes || len(keptText(a.Keep)) > 0) {
		var words []string
		if a.Auto {
			words = append(words, "set by "+a.Signal+whyText(a)+boundsText(a))
		}
		if a.Overload {
			words = append(words, fmt.Sprintf("overloaded%s (degree %.2f)", levelText(a), a.Degree))
		} else {
			words = append(words, "not overloaded")
		}
		if a.Closes {
			words = append(words, "the server is asked to close connections, for workers stay with them")
		}
		words = append(words, keptText(a.Keep)...)
		fmt.Fprintf(b, "  %s\n", strings.Join(words, ", "))
	}
	for i, c := range s.Changes {
		if i == shownChanges {
			break
		}
		fmt.Fprintf(b, "  %s  %s\n", c.At.Local().Format(time.TimeOnly), changeText(c))
	}
}

// why says in plain words what a signal means.
var why = map[string]string{
	adapt.SignalIdle:       "nothing is known yet, nothing is held",
	adapt.SignalHeadroom:   "the server keeps up, nothing is held",
	adapt.SignalModel:      "what the server could do before",
	adapt.SignalTaken:      "as many as the server takes, and one",
	adapt.SignalCPU:        "as few as keep its processors busy",
	adapt.SignalThroughput: "more at once bring no more answers",
	adapt.SignalMemory:     "more at once do not fit into memory",
}

// levelText names the level of overload, if it is a higher one.
func levelText(a *api.AdaptationStatus) string {
	switch a.Level {
	case policy.WhenRejecting.String():
		return ", requests are turned away"
	case policy.WhenFlooded.String():
		return ", flooded"
	}
	return ""
}

func whyText(a *api.AdaptationStatus) string {
	if text := why[a.Signal]; text != "" {
		return ": " + text
	}
	return ""
}

func boundsText(a *api.AdaptationStatus) string {
	switch {
	case a.Ceiling > 0:
		return fmt.Sprintf(" (%d to %d)", a.Floor, a.Ceiling)
	case a.Floor > 1:
		return fmt.Sprintf(" (at least %d)", a.Floor)
	}
	return ""
}

// keptText lists the classes of which not all SYNs are let in.
func keptText(keep []api.KeepStatus) (list []string) {
	for _, k := range keep {
		if k.Share < 1 {
			list = append(list, fmt.Sprintf("%.0f%% of the SYNs of class %s let in", 100*k.Share, k.Class))
		}
	}
	return list
}

func changeText(c api.LimitChange) string {
	text := c.Old + " → " + c.New
	if c.Old == c.New {
		text = c.New
	}
	if c.By != "agent" {
		text += " by " + c.By
	}
	return text + ": " + c.Reason
}
