// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"narthex/internal/api"
	"narthex/internal/daemon"
)

func explainCommand(env Env) *cobra.Command {
	var req api.ExplainRequest
	var file string
	var asJSON bool
	var at string
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

With what a request says (--url, --method, -H, or --sni and --ja4 of a TLS connection), it also says
how rules read it, which request rule matches and what becomes of the request. A trusted
proxy's request is that of the client in its X-Forwarded-For.

With --at it says what became of the client's requests within a minute of that time, where
the daemon keeps refusals (--refusals), and for which reason.`,
		Example: `  narthex explain --from 192.0.2.7
  narthex explain --from 192.0.2.7 --at 03:10
  narthex explain --from 192.0.2.7:50000 --to 198.51.100.1:80
  narthex explain --from 192.0.2.7 --url http://shop.example/cgi-bin/a -H 'Cookie: tier=gold'
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
	flags.StringVar(&req.JA4, "ja4", "", "JA4 fingerprint of the TLS ClientHello")
	flags.StringArrayVarP(&req.Headers, "header", "H", nil, "header of the request, as \"Key: value\"; may be repeated")
	flags.StringVar(&file, "policy", "", "policy file to ask in place of the daemon")
	flags.StringVar(&at, "at", "", "say what became of the client around "+momentText+", as far as it was kept")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if req.From == "" {
			return usage("no client is named: use `narthex explain --from IP`")
		}
		if err := daemon.CheckExplain(req); err != nil {
			return err
		}
		if at != "" {
			return explainPast(cmd.Context(), t, req.From, at, asJSON)
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

// around is how far from the moment that is asked for refusals are shown.
const around = time.Minute

// explainPast shows what was kept of a client's refusals around a moment.
func explainPast(ctx context.Context, t *target, from, at string, asJSON bool) error {
	when, err := moment(at, time.Now())
	if err != nil {
		return usage("--at: " + err.Error())
	}
	client := from
	if with, err := netip.ParseAddrPort(from); err == nil {
		client = with.Addr().String()
	}
	show, found := eventPrinter(t.env, asJSON, true), 0
	err = t.client().Refusals(ctx, api.EventFilter{From: client}, when.Add(-around), when.Add(around), func(e api.Event) error {
		found++
		return show(e)
	})
	if err == nil && found == 0 {
		err = fmt.Errorf("nothing is kept of refusals of %s within %s of %s: it was served, or that was more than is kept (`narthex events --since 24h` shows all)",
			client, around, when.Local().Format(time.DateTime))
	}
	return t.explain(err)
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
	if d.Learned != "" {
		fmt.Fprintf(b, ", learned in %s", d.Learned)
	}
	b.WriteString(": " + ruleText(d.Rule, d.Action, d.Rate, d.Burst, d.Per) + whenText(d.When, d.Enforced))
	fmt.Fprintf(b, ", class %s: %s%s\n", d.Class, d.Verdict, bucketText(d.Bucket, d.Burst))
	printLimits(b, d.Limits)
	if d.Request != nil {
		printRequest(b, d.Request)
	}
	if d.Room != nil && d.Verdict != "drop" {
		fmt.Fprintf(b, "  a %s %s\n", unit(d.Room.Protocol), roomText(d))
		for _, p := range d.Room.Pools {
			fmt.Fprintf(b, "  %s\n", poolText(p, d.Room.Live))
		}
	}
}

// ruleText says which rule matches and what it does.
func ruleText(rule, action, rate string, burst uint32, per string) string {
	switch {
	case rule == "":
		return "no rule matches"
	case rate == "":
		return fmt.Sprintf("rule %s, %s", rule, action)
	}
	return fmt.Sprintf("rule %s, %s per %s", rule, rateText(rate, burst), per)
}

// whenText says of a rule that is not always enforced when it is, and whether it is now.
func whenText(when string, now *bool) string {
	switch {
	case when == "":
		return ""
	case now == nil:
		return fmt.Sprintf(" (when: %s)", when)
	case *now:
		return fmt.Sprintf(" (when: %s, which is now)", when)
	}
	return fmt.Sprintf(" (when: %s, not now: not enforced)", when)
}

// printRequest says how rules read a request and what becomes of it.
func printRequest(b *strings.Builder, r *api.RequestDecision) {
	switch {
	case r.Refused != "":
		fmt.Fprintf(b, "  the request: %s%s, for servers could read it in two ways: %s\n", r.Verdict, withAnswer(r.Answer), r.Refused)
		return
	case r.SNI != "" || r.JA4 != "":
		var said []string
		if r.SNI != "" {
			said = append(said, "server name "+printable(r.SNI))
		}
		if r.JA4 != "" {
			said = append(said, "fingerprint "+r.JA4)
		}
		fmt.Fprintf(b, "  %s", strings.Join(said, ", "))
	default:
		fmt.Fprintf(b, "  %s %s", r.Method, dash(printable(r.Path)))
		if r.Host != "" {
			fmt.Fprintf(b, " at %s", r.Host)
		}
	}
	if r.Client != "" {
		fmt.Fprintf(b, " of %s", r.Client)
	}
	if r.ClientRule != "" {
		fmt.Fprintf(b, " by rule %s", r.ClientRule)
	}
	if r.Blocked > 0 {
		fmt.Fprintf(b, ", which is blocked for another %s by request rule %s: %s%s\n", span(r.Blocked), strings.Join(r.BlockedBy, " or "), r.Verdict, withAnswer(r.Answer))
		return
	}
	b.WriteString(": " + ruleText(r.Rule, r.Action, r.Rate, r.Burst, r.Per) + whenText(r.When, r.Enforced))
	if r.Class != "" {
		b.WriteString(", class " + r.Class)
	}
	fmt.Fprintf(b, ": %s%s%s\n", r.Verdict, withAnswer(r.Answer), bucketText(r.Bucket, r.Burst))
	printLimits(b, r.Limits)
	switch {
	case r.Block > 0 && r.Client != "": // a trusted proxy's connections are never refused
		fmt.Fprintf(b, "  who is rejected has all requests rejected for %s\n", given(r.Block))
	case r.Block > 0:
		fmt.Fprintf(b, "  who is rejected has connections refused for %s\n", given(r.Block))
	}
	if r.Learn > 0 {
		fmt.Fprintf(b, "  the client is remembered in class %s for %s\n", r.Class, given(r.Learn))
	}
}

// withAnswer says what who is rejected is told.
func withAnswer(answer string) string {
	if answer == "" {
		return ""
	}
	return " with " + answer
}

// printLimits says what each of the limits of a rule has left.
func printLimits(b *strings.Builder, limits []api.LimitDecision) {
	for i, l := range limits {
		left := bucketText(l.Bucket, l.Burst)
		if l.AtOnce > 0 {
			left = placesText(l.Bucket, l.AtOnce)
		}
		fmt.Fprintf(b, "  limit %d: %s per %s%s\n", i+1, limitText(l.Rate, l.Burst, l.AtOnce), l.Per, left)
	}
}

// printable escapes what is not printable ASCII, so that a name or path steers no terminal.
func printable(s string) string {
	quoted := strconv.QuoteToASCII(s)
	return quoted[1 : len(quoted)-1]
}

// given returns a time as policies say it: 10m and not 10m0s.
func given(seconds float64) string {
	text := time.Duration(seconds * float64(time.Second)).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// roomText says what becomes of a request on the connection, or of the connection.
func roomText(d api.Decision) string {
	r := d.Room
	class := cmp.Or(r.Class, d.Class)
	if !r.Live && len(r.Pools) > 0 && r.Limit == 0 && r.Max == 0 {
		return "waits while its pool is full"
	}
	if !r.Live {
		return "waits while " + limitsText(r, class)
	}
	text := "would be served at once"
	switch {
	case r.Full && d.Shadow:
		text = "would be rejected (queue_full) if the service were not in shadow mode"
	case r.Full:
		text = "would be rejected (queue_full)"
	case r.Waits && d.Shadow:
		text = "would wait if the service were not in shadow mode"
	case r.Waits:
		text = "would wait"
	}
	text += fmt.Sprintf(": %s in service, ", of(r.InService, r.Limit))
	switch {
	case r.Auto && r.SetBy != "":
		text += fmt.Sprintf("a limit that sets itself by %s, ", r.SetBy)
	case r.Auto:
		text += "a limit that sets itself, "
	}
	if r.Max > 0 {
		text += fmt.Sprintf("%s of class %s, ", of(r.ClassInService, r.Max), class)
	}
	text += fmt.Sprintf("%d waiting", r.Waiting)
	if r.Overload {
		text += "; the service is overloaded"
	}
	if r.Kept != nil {
		text += fmt.Sprintf("; %.0f%% of the SYNs of class %s are let in", 100**r.Kept, d.Class)
	}
	return text
}

// poolText says what pool bounds a service, and what happens when it is full.
func poolText(p api.PoolDecision, live bool) string {
	text := "in pool " + p.Name
	if p.Shares > 0 {
		text += fmt.Sprintf(", share %d of %d", p.Share, p.Shares)
	}
	switch {
	case live:
		text += fmt.Sprintf(": %s in service, %d waiting", of(p.InService, p.Limit), p.Waiting)
	case p.Auto:
		text += ": as many in service as the server works best with"
	case p.Limit > 0:
		text += fmt.Sprintf(": %d in service", p.Limit)
	}
	when := "when it is full"
	if p.Full {
		when = "it is full"
	}
	if p.Shares > 0 {
		return fmt.Sprintf("%s; %s: %.0f%% of its time in service, and what others leave", text, when, 100*float64(p.Share)/float64(p.Shares))
	}
	return fmt.Sprintf("%s; %s: the most important class of all its services goes first", text, when)
}

// limitsText says when requests wait.
func limitsText(r *api.RoomDecision, class string) string {
	switch {
	case r.Auto && r.Max == 0:
		return "as many are in service as the server works best with"
	case r.Auto:
		return fmt.Sprintf("as many are in service as the server works best with, or %d of class %s", r.Max, class)
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

// placesText says how many of the places are taken that there are at once.
func placesText(places *api.BucketStatus, most uint32) string {
	if places == nil {
		return ""
	}
	return fmt.Sprintf(" (%.0f now)", float64(most)-places.Tokens)
}

// bucketText says what is in the bucket. A new one is full, but for a source that inherits
// another's debt.
func bucketText(bucket *api.BucketStatus, burst uint32) string {
	if bucket == nil || burst == 0 {
		return ""
	}
	level := fmt.Sprintf("%.1f of %d tokens", bucket.Tokens, burst)
	switch full := time.Duration(bucket.FullIn * float64(time.Second)).Round(time.Millisecond); {
	case full > 0 && bucket.Known:
		return fmt.Sprintf(" (%s, full in %s)", level, full)
	case full > 0:
		return fmt.Sprintf(" (no bucket yet: it would start with %s, full in %s)", level, full)
	case bucket.Known:
		return fmt.Sprintf(" (full: %d tokens)", burst)
	}
	return fmt.Sprintf(" (no bucket yet: it starts full, with %d tokens)", burst)
}
