// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"narthex/internal/daemon"
	"narthex/internal/daemon/api"
)

func explainCommand(env Env) *cobra.Command {
	var req api.ExplainRequest
	var file string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain --from IP[:PORT] [--to ADDR:PORT]",
		Short: "Say what would decide a connection, without sending anything",
		Long: `Say which service a connection from an address is to, by which interface it would
come (that of the route to the address) and whether the service is policed there,
which rule matches, which class it gets, what is in the token bucket at this moment
and whether a request, or a connection of a tls or tcp service, would have to wait
for its turn. Without --to, that is said for every service that can be reached from there.
With --policy a file is asked in place of the daemon: buckets, waiting rooms, interfaces
and local addresses are unknown then, and any destination is taken for local.

What a request says (--url, --method, --sni, -H) matters to request rules.`,
		Example: `  narthex explain --from 192.0.2.7
  narthex explain --from 192.0.2.7:50000 --to 198.51.100.1:80
  narthex explain --from 2001:db8::7 --policy policy.yaml`,
		Args: none,
	}
	t := addTarget(cmd, env)
	flags := cmd.Flags()
	flags.StringVar(&req.From, "from", "", "address of the client, with its port if rules depend on it")
	flags.StringVar(&req.To, "to", "", "address and port of the server")
	flags.StringVar(&req.URL, "url", "", "URL of the request")
	flags.StringVar(&req.Method, "method", "", "method of the request")
	flags.StringVar(&req.SNI, "sni", "", "server name in the TLS ClientHello")
	flags.StringArrayVarP(&req.Headers, "header", "H", nil, "header of the request, as \"Key: value\"; may be repeated")
	flags.StringVar(&file, "policy", "", "policy file to ask in place of the daemon")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if req.From == "" {
			return usage("no client is named: use `narthex explain --from IP`")
		}
		if err := daemon.CheckExplain(req); err != nil {
			return err
		}
		var result api.ExplainResult
		var err error
		if file != "" {
			result, err = daemon.Offline(file, req)
		} else {
			result, err = t.client().Explain(cmd.Context(), req)
		}
		if err != nil {
			return t.explain(err)
		}
		if asJSON {
			return printJSON(env, result)
		}
		return printExplanation(env.Stdout, result)
	}
	return cmd
}

func printExplanation(w io.Writer, r api.ExplainResult) error {
	var b strings.Builder
	for _, d := range r.Decisions {
		printDecision(&b, d)
	}
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", note)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func printDecision(b *strings.Builder, d api.Decision) {
	if d.Service == "" {
		fmt.Fprintf(b, "%s: %s\n", d.Reason, d.Verdict)
		return
	}
	fmt.Fprintf(b, "service %s", d.Service)
	if d.Shadow {
		b.WriteString(" (shadow)")
	}
	if d.Reason != "" {
		fmt.Fprintf(b, ": %s: %s\n", d.Reason, d.Verdict)
		return
	}
	if d.Interface != "" {
		fmt.Fprintf(b, " on %s", d.Interface)
	}
	switch {
	case d.Rule == "":
		b.WriteString(": no rule matches")
	case d.Rate == "":
		fmt.Fprintf(b, ": rule %s, %s", d.Rule, d.Action)
	default:
		fmt.Fprintf(b, ": rule %s, %s burst %d per %s", d.Rule, d.Rate, d.Burst, d.Per)
	}
	fmt.Fprintf(b, ", class %s: %s%s\n", d.Class, d.Verdict, bucketText(d))
	if d.Room != nil && d.Verdict != "drop" {
		fmt.Fprintf(b, "  a %s %s\n", unit(d.Room.Protocol), roomText(d))
	}
}

// roomText says what becomes of a request on the connection, or of the connection.
func roomText(d api.Decision) string {
	r := d.Room
	if !r.Live {
		return "waits while " + limitsText(r, d.Class)
	}
	text := "would be served at once"
	switch {
	case r.Waits && d.Shadow:
		text = "would wait if the service were not in shadow mode"
	case r.Waits:
		text = "would wait"
	}
	text += fmt.Sprintf(": %s in service, ", of(r.InService, r.Limit))
	if r.Max > 0 {
		text += fmt.Sprintf("%s of class %s, ", of(r.ClassInService, r.Max), d.Class)
	}
	return text + fmt.Sprintf("%d waiting", r.Waiting)
}

// limitsText says when requests wait.
func limitsText(r *api.RoomDecision, class string) string {
	switch {
	case r.Max == 0:
		return fmt.Sprintf("%d are in service", r.Limit)
	case r.Limit == 0:
		return fmt.Sprintf("%d of class %s are in service", r.Max, class)
	}
	return fmt.Sprintf("%d are in service, or %d of class %s", r.Limit, r.Max, class)
}

// of returns "2 of 6", or the number alone where there is no limit.
func of(n, limit int) string {
	if limit == 0 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%d of %d", n, limit)
}

// bucketText says what is in the bucket. A new one is full, but for a source that inherits
// another's debt.
func bucketText(d api.Decision) string {
	bucket := d.Bucket
	if bucket == nil {
		return ""
	}
	level := fmt.Sprintf("%.1f of %d tokens", bucket.Tokens, d.Burst)
	switch full := time.Duration(bucket.FullIn * float64(time.Second)).Round(time.Millisecond); {
	case full > 0 && bucket.Known:
		return fmt.Sprintf(" (%s, full in %s)", level, full)
	case full > 0:
		return fmt.Sprintf(" (no bucket yet: it would start with %s, full in %s)", level, full)
	case bucket.Known:
		return fmt.Sprintf(" (full: %d tokens)", d.Burst)
	}
	return fmt.Sprintf(" (no bucket yet: it starts full, with %d tokens)", d.Burst)
}
