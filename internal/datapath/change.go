// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/cilium/ebpf"

	"narthex/internal/policy"
)

// change takes an instance from one state to the next. Until install has replaced the
// policy's image nothing that packets are decided by has changed, and abort leaves no
// trace; after it there is no way back, and what goes wrong is noted.
type change struct {
	in         *Instance
	state      State
	generation uint32

	groups  []uint32 // of each service; see groupServices
	objects *objects // the instance's, or larger ones
	before  *slots   // as the objects' maps have them
	slots   *slots   // as they will be
	writes  []slotWrite
	texts   uint32 // offset of the texts of answers
	lists   int    // which table of lists will be in force, from 1 on; 0: there is none
	image   *ebpf.Map

	added      []attached // attached by this change
	addedGates []gate
	undo       []func() error
	done       []func()
}

// slotWrite is what has to be in a slot's maps before an image names it.
type slotWrite struct {
	slot  uint32
	fresh bool // counters start at zero
	owner narthexRuleSlot
	time  uint64 // of the bucket
}

// prepare does what may fail.
func (c *change) prepare() error {
	var err error
	if c.groups, err = groupServices(c.state.Tables.Services); err != nil {
		return err
	}
	if err := c.makeRoom(); err != nil {
		return err
	}
	if err := c.assignRules(); err != nil {
		return err
	}
	if err := c.assignRooms(); err != nil {
		return err
	}
	if err := c.placeAnswers(); err != nil {
		return fmt.Errorf("writing answers: %w", err)
	}
	locals := append(slices.Clone(c.state.Locals), alwaysLocal...)
	listens, err := policy.CompileListens(c.state.Tables.Services, locals)
	if err != nil {
		return err
	}
	if err := c.placeLists(); err != nil {
		return err
	}
	im := buildImage(c.state.Tables, c.state.Targets, listens, c.slots, groupBits(c.groups, c.generation), c.generation, c.texts, c.lists)
	blocked, err := c.objects.anyBlocked()
	if err != nil {
		return err
	}
	if blocked {
		headerOf(&im.pages[0]).Blocks = 1
	}
	if c.image, err = im.newMap(); err != nil {
		return err
	}
	if err := c.attachMissing(); err != nil {
		return err
	}
	return c.attachGates()
}

// assignRooms gives services and classes their slots.
func (c *change) assignRooms() error {
	rooms, err := c.objects.readRooms()
	if err != nil {
		return err
	}
	err = c.slots.assignServices(slotNames(c.state.Tables), func(slot uint32) bool {
		r := &rooms[slot]
		return !r.isEmpty() || r.InService > 0 || r.Charged > 0 || r.Told > 0
	})
	if err != nil {
		return err
	}
	return c.slots.assignClasses(c.state.Tables.Classes, func(slot uint32) bool {
		return slices.ContainsFunc(rooms, func(r narthexRoom) bool {
			return r.Class[slot].Waiting > 0 || r.Class[slot].InService > 0
		})
	})
}

// makeRoom chooses the objects: larger ones if the rules do not fit.
func (c *change) makeRoom() error {
	c.objects, c.before, c.slots = c.in.objects, c.in.slots, c.in.slots.clone()
	missing := max(0, c.slots.newRules(ruleOwners(c.state.Tables))-c.slots.free())
	services := len(slotNames(c.state.Tables))
	if missing == 0 && services <= len(c.slots.services) {
		return nil
	}
	c.in.services = max(c.in.services, services)
	larger, err := c.in.larger(len(c.slots.rules) + missing)
	if err != nil {
		return fmt.Errorf("making room for %d more rules and %d services: %w", missing, services, err)
	}
	c.objects = larger
	c.undo = append(c.undo, larger.close)
	if c.before, err = readSlots(larger); err != nil {
		return err
	}
	c.slots = c.before.clone()
	return nil
}

// install writes what the image names, then puts the image in force. The kernel returns
// from that only when no packet uses the old one any more.
func (c *change) install() error {
	for i := range c.writes {
		if err := c.objects.writeSlot(&c.writes[i]); err != nil {
			return err
		}
	}
	if err := c.objects.writeServices(c.before, c.slots); err != nil {
		return err
	}
	if err := c.objects.writeClasses(c.before, c.slots); err != nil {
		return err
	}
	if err := c.addInterfaces(); err != nil {
		return err
	}
	if err := c.objects.addGatePorts(c.state.Tables.Services); err != nil {
		return err
	}
	if err := c.objects.PolicyImage.Put(zero, c.image); err != nil {
		return fmt.Errorf("putting the policy in force: %w", err)
	}
	return nil
}

// abort takes back what prepare did.
func (c *change) abort() error {
	var all error
	for _, undo := range slices.Backward(c.undo) {
		all = errors.Join(all, undo())
	}
	closeMap(c.image)
	return all
}

// settle makes the new state the instance's and cleans up behind the old one.
func (c *change) settle() {
	in := c.in
	before := in.slots
	old := in.objects
	in.objects, in.slots, in.applied, in.imageGen = c.objects, c.slots, c.state, c.generation
	if t := c.state.Tables.Answers; t != nil {
		in.texts, in.answersAt = t.Texts, c.texts
		in.warn(record(in.objects.Journal, keyAnswers, strconv.Itoa(int(c.texts))))
	}
	in.warn(in.settleLists(c.lists))
	closeMap(old.image)
	old.image = nil
	in.objects.image = c.image
	in.warn(in.switchLinks(before))
	if old != in.objects {
		in.warn(old.close())
	}
	in.warn(pin(in.objects.image, in.pins.mapPath(imageName)))
	for _, done := range c.done {
		done()
	}
	in.policed = append(in.policed, c.added...)
	in.gates = append(in.gates, c.addedGates...)
	in.detachUnwanted(c.state.Targets)
	if slices.ContainsFunc(in.slots.services, isPoolSlot) { // rooms tell their pools anew
		in.warn(in.tick())
	}
	in.warn(in.clearLeft(&c.state))
	in.detachUnwantedGates(&c.state)
	if err := in.followSockets(&c.state); err != nil {
		in.warn(err)
	}
	c.trimInterfaces()
	in.warn(in.releaseServices(slotNames(c.state.Tables)))
	in.warn(in.releaseRules(ruleOwners(c.state.Tables)))
}

// warn notes what went wrong once the new state was in force.
func (in *Instance) warn(err error) {
	if err != nil {
		in.log.Warn("the new state is in force, but", "error", err)
	}
}
