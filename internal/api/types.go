// SPDX-License-Identifier: Apache-2.0

// Package api is what the daemon and its clients say to each other: JSON over HTTP on a unix
// socket.
package api

import (
	"strings"
	"time"

	"narthex/internal/datapath"
	"narthex/internal/policy"
)

// The paths of the API.
const (
	PathStatus  = "/v1/status"
	PathReload  = "/v1/reload"
	PathSet     = "/v1/set"
	PathExplain = "/v1/explain"
	PathStop    = "/v1/stop"
)

// Status is what `narthex status` shows. It is the answer to GET /v1/status.
type Status struct {
	Instance  string                     `json:"instance"`
	Enforcing bool                       `json:"enforcing"` // something is attached
	PID       int                        `json:"pid"`       // 0: enforcing without a daemon
	Version   string                     `json:"version"`
	Started   time.Time                  `json:"started_at,omitzero"`
	Adopted   bool                       `json:"adopted"` // found in force when the daemon started
	Policy    PolicyStatus               `json:"policy"`
	Trial     *TrialStatus               `json:"trial,omitempty"` // absent: no policy is tried out
	Services  []ServiceStatus            `json:"services"`
	Pools     []ServicePool              `json:"pools,omitempty"`
	Classes   []ClassStatus              `json:"classes"`
	Rules     []RuleStatus               `json:"rules"`    // of connections
	Requests  []RequestRuleStatus        `json:"requests"` // rules of requests
	Reasons   map[string]datapath.Counts `json:"reasons"`  // packets decided without a rule
	Overrides []Override                 `json:"overrides"`
	Sources   SourcesStatus              `json:"sources"`
	Lists     []ListStatus               `json:"lists"`
	MapBytes  uint64                     `json:"map_bytes"`
	// WaitingRoom is the memory that all waiting rooms share.
	WaitingRoom PoolStatus `json:"waiting_room"`
	// Missing is what the kernel lacks, and what that means.
	Missing  []datapath.Missing `json:"missing"`
	Notes    []string           `json:"notes"`    // what is not as one might expect
	Warnings []string           `json:"warnings"` // on the policy file
	Events   EventsStatus       `json:"events"`
	Reloads  ReloadsStatus      `json:"reloads"`
	// Capabilities are those that the daemon holds, such as CAP_BPF.
	Capabilities []string `json:"capabilities"`
	Host         string   `json:"host,omitempty"` // name of the machine
}

// ListStatus is the state of a list of addresses.
type ListStatus struct {
	Name     string    `json:"name"`
	File     string    `json:"file"`
	Entries  int       `json:"entries"`   // as they are written
	V4       int       `json:"v4_ranges"` // that they make up
	V6       int       `json:"v6_ranges"`
	Bytes    int64     `json:"file_bytes"`
	Modified time.Time `json:"modified_at"` // the file in force
	Read     time.Time `json:"read_at"`
	Reads    uint64    `json:"reads"`
	Failures uint64    `json:"failures"`
	// Wrong says why the file cannot be read as it is now, and what was read before stays. Absent: it can.
	Wrong      string    `json:"wrong,omitempty"`
	WrongSince time.Time `json:"wrong_since,omitzero"`
	// Matches is how many SYNs and requests came from the list since the policy is in force.
	Matches uint64 `json:"matches"`
}

// PolicyStatus says which policy is in force.
type PolicyStatus struct {
	File   string    `json:"file"`
	Hash   string    `json:"hash"` // SHA-256 of the file
	Loaded time.Time `json:"loaded_at,omitzero"`
	// Change is absent without a daemon.
	Change *Change `json:"last_change,omitempty"`
	// Unconfirmed is absent for a policy that stays in force.
	Unconfirmed *Unconfirmed `json:"unconfirmed,omitempty"`
}

// ServiceStatus is the state of one service.
type ServiceStatus struct {
	Name       string            `json:"name"`
	Listen     []string          `json:"listen"`
	Protocol   policy.Protocol   `json:"protocol"`         // http: of requests; else what is said of requests is of connections
	Mode       string            `json:"mode"`             // enforce or shadow
	Listening  bool              `json:"listening"`        // a server listens on every address and port
	Silent     []string          `json:"silent,omitempty"` // those on which none does
	Limit      string            `json:"limit"`            // requests in service at once: a number or unlimited, and (auto) if it sets itself
	Interfaces []InterfaceStatus `json:"interfaces"`
	Counts
	*RoomStatus // nil for a service that only has its SYNs policed
	// Adaptation is absent where nothing is held, and for tcp and tls where nothing depends on overload.
	Adaptation *AdaptationStatus `json:"adaptation,omitempty"`
	Changes    []LimitChange     `json:"limit_changes"` // the last ten, the newest first
	// CPU is what the processes that serve it use; absent where they or their cgroup are not known.
	CPU *CPUStatus `json:"cpu,omitempty"`
}

// CPUStatus is the processor time of a cgroup, which may serve more than one service.
type CPUStatus struct {
	Cgroup  string  `json:"cgroup"`  // its path
	Seconds float64 `json:"seconds"` // since it was made
}

// RoomStatus is the waiting room of a service.
type RoomStatus struct {
	InService int               `json:"in_service"` // requests that the server works on
	Waiting   int               `json:"waiting"`    // requests that are held
	Gathering int               `json:"gathering"`  // requests whose head is not complete
	Answer    string            `json:"answer"`     // to requests for which there is no room: its status and its name, or reset
	QueueSize int               `json:"queue_size"` // requests that can be held, with those whose head is not complete
	Classes   []RoomClassStatus `json:"classes"`    // most important first
}

// RoomClassStatus is what a waiting room has of one class. Counters are since the instance
// was loaded.
type RoomClassStatus struct {
	Name      string            `json:"name"`
	Max       int               `json:"max,omitempty"` // requests in service at once; 0: no bound of its own
	InService int               `json:"in_service"`
	Waiting   int               `json:"waiting"`
	Arrived   uint64            `json:"arrived"`    // requests that came
	Admitted  uint64            `json:"admitted"`   // of these, at once
	Held      uint64            `json:"held"`       // of these, those that had to wait
	WouldHold uint64            `json:"would_hold"` // of those admitted, the ones that only shadow mode let in
	Released  uint64            `json:"released"`   // of those held, the ones that were let in
	Ahead     uint64            `json:"ahead"`      // of these, those of known sources, before others of the class
	GaveUp    uint64            `json:"gave_up"`    // of those held, the ones whose client went away
	Rejected  map[string]uint64 `json:"rejected"`   // by reason, if there are any
	Served    uint64            `json:"served"`     // requests that left service
	Lost      uint64            `json:"lost"`       // of these, the ones whose end was not seen
	Paused    uint64            `json:"paused"`     // times that a request left service because its body did not come
	BytesIn   uint64            `json:"bytes_in"`   // of requests, as far as the server has acknowledged them; without headers of TCP and below
	BytesOut  uint64            `json:"bytes_out"`  // that the server has sent, likewise, without those that it sent again
	Wait      Durations         `json:"wait"`       // how long those that were released had waited
	Service   Durations         `json:"service"`    // how long requests were in service
}

// Durations sums up durations, in seconds. Quantiles are estimates from the buckets.
type Durations struct {
	Count   uint64   `json:"count"`
	P50     float64  `json:"p50"`
	P99     float64  `json:"p99"`
	Mean    float64  `json:"mean"`
	Sum     float64  `json:"sum"`
	Buckets []Bucket `json:"buckets"` // in order; empty ones are left out
}

// Bucket counts durations within bounds, in seconds.
type Bucket struct {
	From  float64 `json:"from"`         // at least
	To    float64 `json:"to,omitempty"` // less than; 0: no bound
	Count uint64  `json:"count"`
}

// Quantile estimates below which duration, in seconds, a share q of them is. It takes the
// durations of a bucket for evenly spread between its bounds. Of none it is 0.
func (d Durations) Quantile(q float64) float64 {
	if d.Count == 0 {
		return 0
	}
	rank := q * float64(d.Count)
	for _, b := range d.Buckets {
		n := float64(b.Count)
		switch {
		case rank > n:
			rank -= n
		case b.To == 0:
			return b.From
		default:
			return b.From + (b.To-b.From)*rank/n
		}
	}
	return d.Buckets[len(d.Buckets)-1].From // by an error of rounding
}

// PoolStatus says how much of the memory that waiting rooms share is in use.
type PoolStatus struct {
	Slots     int `json:"slots"` // requests that can be held at once, in all services
	FreeSlots int `json:"free_slots"`
	SlotSize  int `json:"slot_size"` // bytes of the longest request that can be held
	Flows     int `json:"flows"`     // connections that can be followed at once
	UsedFlows int `json:"used_flows"`
}

// InterfaceStatus is an interface on which a service is policed.
type InterfaceStatus struct {
	Name   string        `json:"name"`
	Mode   datapath.Mode `json:"mode"`
	Reason string        `json:"reason,omitempty"` // why not a better mode
}

// Counts are SYNs since the instance was loaded.
type Counts struct {
	Matched uint64 `json:"matched"`
	datapath.Counts
}

// ClassStatus is one class.
type ClassStatus struct {
	Name     string `json:"name"`
	Priority int    `json:"priority"`
	Default  bool   `json:"default"`
}

// RuleStatus is one connection rule.
type RuleStatus struct {
	Name       string  `json:"name"`
	Action     string  `json:"action"`             // police, classify, drop or pass
	Rate       string  `json:"rate,omitempty"`     // such as 50/s, or auto
	RateNow    float64 `json:"rate_now,omitempty"` // of auto, per second; absent: it limits nothing at the moment
	Burst      uint32  `json:"burst,omitempty"`    // bucket depth; absent of auto: it follows the rate
	Per        string  `json:"per,omitempty"`      // who shares a bucket: rule, source or prefix lengths
	When       string  `json:"when,omitempty"`     // overload, rejecting or flooded: enforced from then on only; absent: always
	Class      string  `json:"class,omitempty"`
	Overridden bool    `json:"overridden"`
	Demoted    uint64  `json:"demoted,omitempty"` // requests that it put into the lowest class; in shadow mode they count as would_drop
	// Limits are asked in this order, before the rate.
	Limits []LimitStatus `json:"limits,omitempty"`
	Counts
}

// RequestRuleStatus is one request rule. Its counts are of requests; dropped are all that it
// has rejected or dropped.
type RequestRuleStatus struct {
	RuleStatus
	Over  string  `json:"over,omitempty"`          // what is done out of profile: reject, drop or demote
	Block float64 `json:"block_seconds,omitempty"` // for which a client's connections are refused after a rejection
	Learn float64 `json:"learn_seconds,omitempty"` // for which a client is remembered in the class
	// Answer is said to who is rejected: its status and its name, or reset; absent where services differ in it.
	Answer string `json:"answer,omitempty"`
}

// Override is a limit that was set by hand.
type Override struct {
	Path  string `json:"path"`
	Value string `json:"value"`
	// Until is when it ends by itself; absent: it does not.
	Until *time.Time `json:"until,omitempty"`
	// Deadline is the same by a clock that nobody sets, in nanoseconds; the daemon's alone.
	Deadline time.Duration `json:"-"`
}

// SourcesStatus says how much of the table of per-source buckets is in use.
type SourcesStatus struct {
	Size int `json:"size"`
	Used int `json:"used"`
	Debt int `json:"debt"` // of those in use, the ones that are not full
}

// ReloadRequest is the body of POST /v1/reload.
type ReloadRequest struct {
	File string `json:"file"` // absolute; empty: the one in force, as it is now
	// Confirm is after how many seconds the policy is taken back unless it is confirmed; 0: never.
	Confirm float64 `json:"confirm_seconds,omitempty"`
}

// ReloadResult is the answer to it.
type ReloadResult struct {
	Policy   PolicyStatus `json:"policy"`
	Ended    []Override   `json:"ended_overrides"`
	Trial    bool         `json:"ended_trial,omitempty"` // a trial ran, and has ended
	Warnings []string     `json:"warnings"`
	Notes    []string     `json:"notes"`
}

// SetRequest is the body of POST /v1/set: one limit, or several at once, all or none.
type SetRequest struct {
	Path   string     `json:"path,omitempty"`
	Value  string     `json:"value,omitempty"`
	Policy bool       `json:"policy,omitempty"`      // end the override of path, back to the policy's value
	Values []Override `json:"values,omitempty"`      // in place of the others
	For    float64    `json:"for_seconds,omitempty"` // after which what is set ends by itself; 0: it does not
}

// All lists what is to be set.
func (r SetRequest) All() []Override {
	if len(r.Values) > 0 {
		return r.Values
	}
	return []Override{{Path: r.Path, Value: r.Value}}
}

// Paths names what is to be set, in words.
func (r SetRequest) Paths() string {
	var paths []string
	for _, o := range r.All() {
		paths = append(paths, o.Path)
	}
	return strings.Join(paths, ", ")
}

// SetResult is the answer to it.
type SetResult struct {
	Changed   bool       `json:"changed"`               // false: it was so already
	Trial     bool       `json:"ended_trial,omitempty"` // a trial ran, and has ended
	Buckets   string     `json:"buckets,omitempty"`     // what becomes of the tokens, in a sentence
	Overrides []Override `json:"overrides"`             // all that are in force now
}

// ExplainRequest is the body of POST /v1/explain: a connection, and the request on it.
type ExplainRequest struct {
	From    string   `json:"from"` // IP or IP:PORT
	To      string   `json:"to"`   // ADDR:PORT; empty: every service
	URL     string   `json:"url,omitempty"`
	Method  string   `json:"method,omitempty"`
	SNI     string   `json:"sni,omitempty"`
	JA4     string   `json:"ja4,omitempty"`     // fingerprint of the ClientHello
	Headers []string `json:"headers,omitempty"` // "Key: value"
}

// ExplainResult is the answer to it.
type ExplainResult struct {
	From      string     `json:"from"`
	To        string     `json:"to"`
	Decisions []Decision `json:"decisions"`
	Notes     []string   `json:"notes"`
}

// Decision is what would happen to a SYN to one service, and then to the request.
type Decision struct {
	Service   string          `json:"service"` // empty: to no service, it always passes
	Shadow    bool            `json:"shadow"`
	Interface string          `json:"interface,omitempty"` // by which it would come, if that is known
	Policed   *bool           `json:"policed,omitempty"`   // whether the service is, on that interface
	Reason    string          `json:"reason,omitempty"`    // why no rule is asked
	Learned   string          `json:"learned,omitempty"`   // class that the source is learned in
	Rule      string          `json:"rule"`                // empty: no rule matches
	Action    string          `json:"action,omitempty"`
	Rate      string          `json:"rate,omitempty"`
	Burst     uint32          `json:"burst,omitempty"`
	Per       string          `json:"per,omitempty"`
	Limits    []LimitDecision `json:"limits,omitempty"`   // beside the rate
	When      string          `json:"when,omitempty"`     // overload, rejecting or flooded: the rule is enforced from then on only
	Enforced  *bool           `json:"enforced,omitempty"` // whether it is now; absent: always, or not known
	Class     string          `json:"class,omitempty"`
	Bucket    *BucketStatus   `json:"bucket,omitempty"` // live; absent without a daemon
	Room      *RoomDecision   `json:"room,omitempty"`   // absent where requests do not wait
	// Request is absent where none was asked for, or none gets so far or is looked at.
	Request *RequestDecision `json:"request,omitempty"`
	Verdict string           `json:"verdict"` // pass, drop, would drop or by the bucket
}

// RequestDecision is what would happen to the request, or to a TLS connection.
type RequestDecision struct {
	Method  string `json:"method,omitempty"`
	Path    string `json:"path,omitempty"` // as rules compare it, as are the others
	Host    string `json:"host,omitempty"`
	SNI     string `json:"sni,omitempty"`
	JA4     string `json:"ja4,omitempty"`
	Client  string `json:"client,omitempty"`  // whose request it is, if a trusted proxy says so
	Refused string `json:"refused,omitempty"` // why it is answered 400

	ClientRule string   `json:"client_rule,omitempty"`     // connection rule that matches that client
	Blocked    float64  `json:"blocked_seconds,omitempty"` // for which requests of that client are rejected yet
	BlockedBy  []string `json:"blocked_by,omitempty"`      // the rules that may have done so

	When     string `json:"when,omitempty"`     // overload, rejecting or flooded: the rule is enforced from then on only
	Enforced *bool  `json:"enforced,omitempty"` // whether it is now; absent: always, or not known

	Rule    string          `json:"rule"` // empty: no rule matches
	Action  string          `json:"action,omitempty"`
	Rate    string          `json:"rate,omitempty"`
	Burst   uint32          `json:"burst,omitempty"`
	Per     string          `json:"per,omitempty"`
	Limits  []LimitDecision `json:"limits,omitempty"` // beside the rate
	Over    string          `json:"over,omitempty"`
	Block   float64         `json:"block_seconds,omitempty"`
	Learn   float64         `json:"learn_seconds,omitempty"`
	Class   string          `json:"class,omitempty"`
	Bucket  *BucketStatus   `json:"bucket,omitempty"` // live; absent without a daemon
	Answer  string          `json:"answer,omitempty"` // if it is rejected, or may be: its status and its name, or reset
	Verdict string          `json:"verdict"`          // pass, reject, drop, demote, would reject, would drop or by the bucket
}

// LimitStatus is one of the limits of a rule.
type LimitStatus struct {
	Rate    string `json:"rate,omitempty"` // such as 50/s
	Burst   uint32 `json:"burst,omitempty"`
	AtOnce  uint32 `json:"at_once,omitempty"` // in place of a rate: how many there may be at once
	Per     string `json:"per"`               // who shares a bucket, or so many at once
	Refused uint64 `json:"refused"`           // what found no token in it, or no place, since the instance was loaded; those asked before it had one
}

// LimitDecision is what one of the limits of a rule would say.
type LimitDecision struct {
	Rate   string        `json:"rate,omitempty"`
	Burst  uint32        `json:"burst,omitempty"`
	AtOnce uint32        `json:"at_once,omitempty"` // in place of a rate
	Per    string        `json:"per"`
	Bucket *BucketStatus `json:"bucket,omitempty"` // live; absent without a daemon. With at_once its tokens are the places left
}

// BucketStatus is the level of a token bucket at this moment.
type BucketStatus struct {
	Known  bool    `json:"known"`   // false: this source was not seen or was forgotten
	Tokens float64 `json:"tokens"`  // connections that would be let in at once
	FullIn float64 `json:"full_in"` // seconds without further SYNs
}

// RoomDecision says whether a request on the connection, or the connection itself, would wait
// at this moment.
type RoomDecision struct {
	Protocol policy.Protocol `json:"protocol"` // http: of a request; else of the connection

	Class string `json:"class,omitempty"` // if it is another than the connection's
	Limit int    `json:"limit,omitempty"` // requests in service at once; 0: no limit
	Auto  bool   `json:"auto,omitempty"`  // the limit sets itself; without a daemon it is not known
	Max   int    `json:"max,omitempty"`   // the same of its class
	// Pools are those that the service shares places in, the innermost first.
	Pools []PoolDecision `json:"pools,omitempty"`
	Live  bool           `json:"live"` // false: the rest is not known, without a daemon

	InService      int  `json:"in_service"`
	ClassInService int  `json:"class_in_service"`
	Waiting        int  `json:"waiting"`
	Waits          bool `json:"waits"` // in shadow mode it would
	Full           bool `json:"full"`  // it would be rejected: the queue is full, of nobody who would make room

	// These are of a service that is steered.
	SetBy    string   `json:"set_by,omitempty"` // signal that has set the limit, as in AdaptationStatus
	Overload bool     `json:"overload"`         // rules with `when: overload` are enforced
	Kept     *float64 `json:"kept,omitempty"`   // share of the SYNs of the connection's class that is let in, if not all
}

// StopRequest is the body of POST /v1/stop.
type StopRequest struct {
	Keep bool `json:"keep"` // leave the policy enforced
}

// Error is the answer to what could not be done.
type Error struct {
	Message string `json:"error"`
	Usage   bool   `json:"usage"` // the request or the policy is wrong, not the state of things
}

func (e *Error) Error() string { return e.Message }
