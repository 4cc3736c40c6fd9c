// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"narthex/internal/daemon"
	"narthex/internal/datapath"
	"narthex/internal/metrics"
	"narthex/internal/web"
)

// mostSources bounds the table of per-source buckets, for it is allocated at once.
const mostSources = 1 << 24

func runCommand(env Env) *cobra.Command {
	var cfg daemon.Config
	var level string
	cmd := &cobra.Command{
		Use:   "run --policy FILE",
		Short: "Put a policy in force and serve until stopped",
		Long: `Load a policy into the kernel, attach it to the interfaces of its services and
follow changes of those, until SIGINT or SIGTERM; then release the requests that
wait and detach everything, or with --keep leave it enforced. SIGHUP reloads the
policy.

If the daemon dies, enforcement goes on as it was; the next run takes it over with
its token buckets and with the limits that were set by hand. If it cannot start,
nothing is attached that was not before.`,
		Example: `  narthex run --policy /etc/narthex/policy.yaml
  narthex run --policy test.yaml --instance test --netns blue
  narthex run --policy policy.yaml --metrics 9464    # and a dashboard at http://127.0.0.1:9464/`,
		Args: none,
	}
	t := addTarget(cmd, env)
	flags := cmd.Flags()
	flags.StringVar(&cfg.Policy, "policy", "", "policy file to enforce")
	flags.StringVar(&cfg.NetNS, "netns", "", "network namespace to police, by its name or the path of its file")
	flags.StringVar(&cfg.Metrics, "metrics", "", "serve the dashboard and metrics on this HOST:PORT, or on this port of 127.0.0.1 (default off)")
	hosts := flags.StringSlice("allowed-host", nil, "names under which a reverse proxy asks for the dashboard")
	complete(cmd, "allowed-host", func(string) []string { return nil })
	flags.StringVar(&cfg.ReadGroup, "read-group", "", "group whose members may see everything on the control socket, and change nothing (default root alone)")
	flags.StringVar(&cfg.WriteGroup, "write-group", "", "group whose members may change limits as well, as \"narthex set\" does (default root alone)")
	flags.StringVar(&cfg.Refusals, "refusals", "", "keep a sample of refusals in this folder, for \"narthex events --since\"; off: none (default off)")
	flags.StringVar(&cfg.History, "history", "", "keep seven days of the dashboard's charts in this folder, at most 32 MiB; off: an hour, in memory (default off)")
	flags.BoolVar(&cfg.ShortAddresses, "short-addresses", false, "keep of refused clients the /24 or /48, not the address")
	flags.BoolVar(&cfg.Keep, "keep", false, "leave the policy enforced at the end")
	sizes := addSizes(cmd, &cfg)
	without := flags.StringSlice("without", nil, "features that the kernel is taken not to have, for tests")
	if err := flags.MarkHidden("without"); err != nil {
		panic(err)
	}
	flags.StringVar(&level, "log-level", "info", "least level of log lines: debug, info, warn or error")
	complete(cmd, "log-level", func(string) []string { return []string{"debug", "info", "warn", "error"} })
	cmd.PreRunE = func(*cobra.Command, []string) (err error) {
		if cfg.Refusals == "off" {
			cfg.Refusals = ""
		}
		if cfg.History == "off" {
			cfg.History = ""
		}
		if cfg.Policy == "" {
			return errors.New("no policy is named: use `narthex run --policy FILE`")
		}
		if err := checkSizes(cmd, sizes); err != nil {
			return err
		}
		if err := checkMetrics(cfg.Metrics); err != nil {
			return err
		}
		var min slog.Level
		if err := min.UnmarshalText([]byte(level)); err != nil {
			return fmt.Errorf("--log-level %q: use debug, info, warn or error", level)
		}
		cfg.Log = newLogger(env, min)
		if cfg.Without, err = datapath.ParseFeatures(*without); err != nil {
			return fmt.Errorf("--without: %w", err)
		}
		return t.resolve()
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGINT, unix.SIGTERM)
		defer stop()
		reload := make(chan os.Signal, 1)
		signal.Notify(reload, unix.SIGHUP)
		defer signal.Stop(reload)
		cfg.Instance, cfg.Socket, cfg.RunDir = t.instance, t.socket, env.RunDir
		cfg.Version, cfg.Reload, cfg.Notifier = env.Version, reload, env.Notifier
		cfg.Confine = env.Confine
		for _, host := range *hosts {
			cfg.Hosts = append(cfg.Hosts, strings.ToLower(host))
		}
		cfg.Kernel, cfg.OpenNetwork, cfg.MetricsHandler = env.Kernel, env.OpenNetwork, metrics.Handler
		cfg.Dashboard = web.Handler
		return daemon.Run(ctx, cfg)
	}
	return cmd
}

// size is an option for how much of something an instance holds.
type size struct {
	name        string
	value       *int
	least, most int
	unit        string // with a space before it, or none
}

// addSizes adds the options for the memory of an instance, which is allocated at once.
func addSizes(cmd *cobra.Command, cfg *daemon.Config) []size {
	add := func(into *int, name string, least, most, usual int, unit, usage string) size {
		usage += fmt.Sprintf(" (default %d, or as an adopted instance has it)", usual)
		cmd.Flags().IntVar(into, name, 0, usage)
		complete(cmd, name, func(string) []string { return nil })
		return size{name, into, least, most, unit}
	}
	return []size{
		add(&cfg.Sources, "sources", 1, mostSources, datapath.DefaultSources, "",
			"per-source token buckets kept at once"),
		add(&cfg.Slots, "slots", 1, datapath.MaxSlots, datapath.DefaultSlots, "",
			"requests that can wait at once, in all services"),
		add(&cfg.SlotSize, "slot-size", datapath.MinSlotSize, datapath.MaxSlotSize, datapath.DefaultSlotSize, " bytes",
			"bytes of the longest request head that can wait"),
		add(&cfg.Flows, "flows", 1, datapath.MaxFlows, datapath.DefaultFlows, "",
			"connections to services that can be followed at once"),
	}
}

func checkSizes(cmd *cobra.Command, sizes []size) error {
	given := map[string]int{}
	for _, s := range sizes {
		if !cmd.Flags().Changed(s.name) {
			continue
		}
		if *s.value < s.least || *s.value > s.most {
			return fmt.Errorf("--%s %d: use %d to %d%s, or leave it out", s.name, *s.value, s.least, s.most, s.unit)
		}
		given[s.name] = *s.value
	}
	if flows, slots := given["flows"], given["slots"]; flows > 0 && flows < slots {
		return fmt.Errorf("--flows %d: use at least %d, as many as --slots: a request that waits is followed, too", flows, slots)
	}
	return nil
}

// checkMetrics refuses what is neither HOST:PORT nor a port. Whether the host can be
// listened on is for the system to say.
func checkMetrics(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host, port = "", address
	}
	if _, bad := strconv.ParseUint(port, 10, 16); address != "" && host == "" && bad != nil {
		return fmt.Errorf("--metrics %q: use HOST:PORT, such as 127.0.0.1:9464, or a port of 127.0.0.1", address)
	}
	return nil
}

func newLogger(env Env, min slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: min}
	if env.Terminal {
		return slog.New(slog.NewTextHandler(env.Stderr, options))
	}
	return slog.New(slog.NewJSONHandler(env.Stderr, options))
}
