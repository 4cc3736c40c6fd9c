// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/cilium/ebpf"
)

// minRules is how many rules a new instance has room for at least.
const minRules = 1024

// objects are the programs and maps of an instance.
type objects struct {
	narthexObjects
	features
	// unswitched: the attached programs are others, which go on until the links are switched.
	unswitched bool
	retired    map[string]*ebpf.Map // maps of theirs that these objects replace
	image      *ebpf.Map            // the policy in force, nil before there is one
}

func (o *objects) close() error {
	for _, m := range o.retired {
		closeMap(m)
	}
	closeMap(o.image)
	return o.narthexObjects.Close()
}

// open adopts what is pinned or creates the instance.
func (in *Instance) open(rules int) error {
	if err := in.pins.draft().remove(); err != nil {
		return fmt.Errorf("removing what an earlier start left: %w", err)
	}
	exist, err := in.pins.exist()
	if err != nil {
		return err
	}
	if exist {
		err = in.adopt(rules)
	} else {
		err = in.create(rules)
	}
	if err == nil {
		in.slots, err = readSlots(in.objects)
	}
	if err != nil && in.objects != nil {
		err = errors.Join(err, in.objects.close())
	}
	return err
}

// create loads a new instance and pins it. It appears complete or not at all.
func (in *Instance) create(rules int) error {
	var err error
	if in.objects, err = in.load(nil, rules); err != nil {
		return err
	}
	draft := in.pins.draft()
	if err := draft.create(); err != nil {
		return err
	}
	if err := in.objects.pin(draft); err != nil {
		return errors.Join(err, draft.remove())
	}
	return os.Rename(draft.dir, in.pins.dir)
}

// adopt loads this binary's programs for what is pinned, of which parts may be missing.
// The links go on with the old ones until Apply switches them.
func (in *Instance) adopt(rules int) error {
	if err := in.pins.create(); err != nil {
		return err
	}
	existing, err := in.pins.loadMaps()
	if err != nil {
		return err
	}
	if in.objects, err = in.load(existing, rules); err != nil {
		return err
	}
	notes, err := in.objects.migrate()
	if err != nil {
		return err
	}
	in.notes, in.adopted = notes, true
	in.imageGen = generation(in.objects.retired[imageName])
	if in.policed, err = in.pins.loadHooks(); err != nil {
		return err
	}
	return in.loadGates()
}

// larger loads objects with room for more rules, which take over from the instance's.
func (in *Instance) larger(rules int) (*objects, error) {
	existing, err := in.objects.byName()
	if err != nil {
		return nil, err
	}
	o, err := in.load(existing, rules)
	if err != nil {
		return nil, err
	}
	// What the attached programs use is what the instance's own objects have yet to replace.
	for name, m := range in.objects.retired {
		old, err := m.Clone()
		if err != nil {
			return nil, errors.Join(err, o.close())
		}
		closeMap(o.retired[name])
		o.retired[name] = old
	}
	if _, err := o.migrate(); err != nil {
		return nil, errors.Join(err, o.close())
	}
	return o, nil
}

// load makes objects from the maps that exist where their layout is this binary's, and
// new maps otherwise. It owns the existing maps from then on. What is of one load alone
// is always new: attached programs keep theirs.
func (in *Instance) load(existing map[string]*ebpf.Map, rules int) (*objects, error) {
	spec, err := readSpec()
	if err != nil {
		return nil, err
	}
	if err := in.size(spec, existing, rules); err != nil {
		return nil, err
	}
	if err := in.features.setKernel(spec); err != nil {
		return nil, err
	}
	mark, err := in.setGate(spec, existing)
	if err != nil {
		return nil, err
	}
	reused, retired := in.sortOut(spec, existing)
	o := &objects{features: in.features, unswitched: existing != nil, retired: retired}
	err = o.loadObjects(spec, reused)
	for _, m := range reused {
		closeMap(m) // the objects have duplicates
	}
	if err != nil {
		return nil, errors.Join(loadError(err), o.close())
	}
	// Without the slots of old, identifiers of rules begin anew and must not meet old tags.
	if reused[narthexMapSourceSecret] == nil || existing[narthexMapRuleSlots] == nil {
		err = o.makeSecret()
	}
	return o, errors.Join(err, record(o.Journal, keyGateMark, strconv.FormatUint(uint64(mark), 10)))
}

// ofOneLoad are the maps that no other programs may meet: the policy image has their form, and they go on in
// the next program.
var ofOneLoad = []string{narthexMapPolicyImage, narthexMapNextPrograms}

// sortOut says which of the existing maps go on, and which have another layout and are
// replaced. The maps of the waiting rooms refer to each other: they go on together or not at
// all. What waits then is sent again by its clients.
func (in *Instance) sortOut(spec *ebpf.CollectionSpec, existing map[string]*ebpf.Map) (reused, retired map[string]*ebpf.Map) {
	fits := func(name string, m *ebpf.Map) bool {
		s := spec.Maps[name]
		return s != nil && !slices.Contains(ofOneLoad, name) && s.Compatible(m) == nil
	}
	together := true
	for _, name := range roomMaps {
		together = together && existing[name] != nil && fits(name, existing[name])
	}
	reused, retired = map[string]*ebpf.Map{}, map[string]*ebpf.Map{}
	for name, m := range existing {
		// Who is learned is learned in a slot of class_slots.
		apart := !slices.Contains(roomMaps, name) && name != narthexMapLearnedClients
		if fits(name, m) && (together || apart) {
			reused[name] = m
		} else {
			retired[name] = m
		}
	}
	return reused, retired
}

// size sets the sizes of maps that depend on the policy and the configuration. Maps do
// not shrink.
func (in *Instance) size(spec *ebpf.CollectionSpec, existing map[string]*ebpf.Map, rules int) error {
	capacity := ceilPowerOfTwo(max(rules, minRules))
	if m := existing[narthexMapRuleSlots]; m != nil {
		capacity = max(capacity, m.MaxEntries())
	}
	sources := in.sources
	if m := existing[narthexMapSourceSets]; m != nil && sources == 0 {
		sources = int(m.MaxEntries()) * sourceWays
	}
	if sources == 0 {
		sources = DefaultSources
	}
	sets := ceilPowerOfTwo((sources + sourceWays - 1) / sourceWays)
	spec.Maps[narthexMapRuleSlots].MaxEntries = capacity
	spec.Maps[narthexMapRuleCounts].MaxEntries = capacity
	spec.Maps[narthexMapRuleBuckets].MaxEntries = 2 * capacity
	spec.Maps[narthexMapRulePaces].MaxEntries = capacity
	services := in.roomCapacity(existing)
	spec.Maps[narthexMapServiceSlots].MaxEntries = services
	spec.Maps[narthexMapServiceCounts].MaxEntries = services
	spec.Maps[narthexMapRooms].MaxEntries = services
	spec.Maps[narthexMapSourceSets].MaxEntries = sets
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("finding out how many CPUs there are: %w", err)
	}
	spec.Maps[narthexMapReadings].MaxEntries = uint32(cpus)
	return spec.Variables[narthexVarSourceSetMask].Set(sets - 1)
}

func ceilPowerOfTwo(n int) uint32 { return 1 << bits.Len32(uint32(max(n, 1))-1) }

func (o *objects) makeSecret() error {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return err
	}
	s := narthexSecret{Key: [2]uint64{binary.NativeEndian.Uint64(b[:]), binary.NativeEndian.Uint64(b[8:])}}
	return o.SourceSecret.Put(zero, &s)
}

// byName returns duplicates of all pinned maps and those of events by name.
func (o *objects) byName() (map[string]*ebpf.Map, error) {
	all := map[string]*ebpf.Map{}
	own := o.pinnedMaps()
	maps.Copy(own, o.eventMaps()) // whoever listens goes on to
	for name, m := range own {
		dup, err := m.Clone()
		if err != nil {
			for _, m := range all {
				closeMap(m)
			}
			return nil, fmt.Errorf("duplicating map %q: %w", name, err)
		}
		all[name] = dup
	}
	return all, nil
}

// pinnedMaps are all maps but scratch memory, and copies of what clients still have.
func (o *objects) pinnedMaps() map[string]*ebpf.Map {
	return map[string]*ebpf.Map{
		narthexMapInterfaceGroups:  o.InterfaceGroups,
		narthexMapJournal:          o.Journal,
		narthexMapPolicyImage:      o.PolicyImage,
		narthexMapReasonCounts:     o.ReasonCounts,
		narthexMapRuleBuckets:      o.RuleBuckets,
		narthexMapRuleCounts:       o.RuleCounts,
		narthexMapRulePaces:        o.RulePaces,
		narthexMapRuleSlots:        o.RuleSlots,
		narthexMapServiceCounts:    o.ServiceCounts,
		narthexMapServiceSlots:     o.ServiceSlots,
		narthexMapSourceSecret:     o.SourceSecret,
		narthexMapSourceSets:       o.SourceSets,
		narthexMapUpperDevices:     o.UpperDevices,
		narthexMapChunkMarks:       o.ChunkMarks,
		narthexMapChunkGaps:        o.ChunkGaps,
		narthexMapClassSlots:       o.ClassSlots,
		narthexMapLearnedClients:   o.LearnedClients,
		narthexMapBlockedClients:   o.BlockedClients,
		narthexMapKnownSources:     o.KnownSources,
		narthexMapFarewells:        o.Farewells,
		narthexMapWatches:          o.Watches,
		narthexMapFlows:            o.Flows,
		narthexMapBriefFlows:       o.BriefFlows,
		narthexMapSeats:            o.Seats,
		narthexMapParkedSockets:    o.ParkedSockets,
		narthexMapOpenings:         o.Openings,
		narthexMapSocketPlaces:     o.SocketPlaces,
		narthexMapGates:            o.Gates,
		narthexMapGatePorts:        o.GatePorts,
		narthexMapGhosts:           o.Ghosts,
		narthexMapPool:             o.Pool,
		narthexMapRooms:            o.Rooms,
		narthexMapSlots:            o.Slots,
		narthexMapConnectionCounts: o.ConnectionCounts,
		narthexMapAnswers:          o.Answers,
		narthexMapLists:            o.Lists,
		narthexMapListMatches:      o.ListMatches,
		narthexMapNextPrograms:     o.NextPrograms,
	}
}

// programs are all that are loaded.
func (o *objects) programs() map[string]*ebpf.Program {
	all := map[string]*ebpf.Program{}
	for name, place := range o.places() {
		if *place != nil {
			all[name] = *place
		}
	}
	return all
}

// pin pins maps and programs in place of what is pinned there.
func (o *objects) pin(p pins) error {
	for _, name := range slices.Sorted(maps.Keys(o.pinnedMaps())) {
		if err := pin(o.pinnedMaps()[name], p.mapPath(name)); err != nil {
			return err
		}
	}
	for name, prog := range o.programs() {
		if err := pin(prog, p.progPath(name)); err != nil {
			return err
		}
	}
	return nil
}

// switchLinks makes the attached programs the new ones, pins what is new, and takes over
// what the old programs have counted and taken meanwhile. The slots are those of before.
func (in *Instance) switchLinks(before *slots) error {
	if !in.objects.unswitched {
		return nil
	}
	// The kernel empties an array of programs that no pin and no process holds: that of the old programs and
	// that of the new ones are pinned until all are switched.
	next, err := in.objects.NextPrograms.Clone() // the object's own is pinned below
	if err != nil {
		return err
	}
	defer closeMap(next)
	if err := pinBeside(next, in.pins.mapPath(narthexMapNextPrograms)); err != nil {
		return err
	}
	var all error
	for _, a := range in.policed {
		if err := a.hook.update(in.objects.program(a.Mode)); err != nil {
			all = errors.Join(all, fmt.Errorf("replacing the program on interface %q: %w", a.Name, err))
		}
	}
	all = errors.Join(all, in.switchGates(), in.objects.pin(in.pins), in.objects.takeOver(before, in.slots))
	for _, m := range in.objects.retired {
		closeMap(m)
	}
	in.objects.unswitched, in.objects.retired = false, nil
	return all
}

// loadMaps opens all pinned maps by name.
func (p pins) loadMaps() (map[string]*ebpf.Map, error) {
	entries, err := os.ReadDir(filepath.Join(p.dir, "maps"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	all := map[string]*ebpf.Map{}
	for _, e := range entries {
		m, err := p.loadPinnedMap(e.Name())
		if err != nil {
			return nil, err
		}
		if m != nil {
			all[e.Name()] = m
		}
	}
	return all, nil
}

// loadHooks opens what polices SYNs, and removes what is left of that of interfaces that are gone.
func (p pins) loadHooks() ([]attached, error) {
	names, err := p.pinnedHooks()
	if err != nil {
		return nil, err
	}
	var all []attached
	for _, name := range names {
		mode, index, _, ok := parseHookName(name)
		m := Mode(mode)
		if !ok || !slices.Contains([]Mode{ModeNative, ModeGeneric, ModeTCX, ModeTC}, m) {
			continue
		}
		s := sideSYN
		if m.isXDP() {
			s = side{}
		}
		h, err := p.openHook(name, s)
		if err != nil {
			return nil, err
		}
		all = append(all, attached{Attachment{Index: index, Mode: m}, h})
	}
	return dropGone(all), nil
}
