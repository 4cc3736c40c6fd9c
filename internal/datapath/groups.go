// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"slices"
	"strings"

	"narthex/internal/policy"
)

// maxGroups is half the bits of interface_groups: the old image has the other half.
const maxGroups = 32

// groupServices numbers the distinct lists of interfaces that services name; groupAny
// for all if there is but one.
func groupServices(services []policy.ServiceTable) ([]uint32, error) {
	numbers := map[string]uint32{}
	groups := make([]uint32, len(services))
	for i := range services {
		names := slices.Clone(services[i].Interfaces)
		slices.Sort(names)
		key := strings.Join(names, "/") // no interface name has a slash
		if _, ok := numbers[key]; !ok {
			numbers[key] = uint32(len(numbers))
		}
		groups[i] = numbers[key]
	}
	if len(numbers) > maxGroups {
		return nil, fmt.Errorf("services name %d different lists of interfaces: at most %d are possible; let more services share theirs", len(numbers), maxGroups)
	}
	if len(numbers) == 1 {
		for i := range groups {
			groups[i] = groupAny
		}
	}
	return groups, nil
}

// groupBits returns which bit of interface_groups stands for each service's group in an
// image: images take turns with the two halves, so that the one being built and the one
// in force do not meet.
func groupBits(groups []uint32, generation uint32) []uint32 {
	bits := slices.Clone(groups)
	for i := range bits {
		if bits[i] != groupAny {
			bits[i] += generation % 2 * maxGroups
		}
	}
	return bits
}

// interfaceBits returns the bits of each target's interface for an image.
func (c *change) interfaceBits() map[uint32]uint64 {
	bits := map[uint32]uint64{}
	byService := groupBits(c.groups, c.generation)
	for _, t := range c.state.Targets {
		for _, service := range t.Services {
			b := byService[service]
			if b == groupAny {
				continue
			}
			for _, index := range append([]int{t.Index}, t.Ports...) {
				bits[uint32(index)] |= 1 << b
			}
		}
	}
	return bits
}

// addInterfaces gives interfaces the bits of the image to come beside those they have,
// and names the devices above them.
func (c *change) addInterfaces() error {
	half := uint64(1<<maxGroups-1) << (c.generation % 2 * maxGroups)
	for index, bits := range c.interfaceBits() {
		var old uint64
		if err := c.objects.InterfaceGroups.Lookup(index, &old); err != nil {
			old = 0
		}
		if err := c.objects.InterfaceGroups.Put(index, old&^half|bits); err != nil {
			return fmt.Errorf("noting the groups of interface %d: %w", index, err)
		}
	}
	for key := range c.uppers() {
		if err := c.objects.UpperDevices.Put(&key, uint8(1)); err != nil {
			return fmt.Errorf("noting a device above interface %d: %w", key.Lower, err)
		}
	}
	return nil
}

// uppers returns the keys of upper_devices.
func (c *change) uppers() map[narthexUpperDevice]bool {
	keys := map[narthexUpperDevice]bool{}
	for _, t := range c.state.Targets {
		for _, mac := range t.Uppers {
			key := narthexUpperDevice{Lower: uint32(t.Index)}
			copy(key.Mac[:], mac)
			keys[key] = true
		}
	}
	return keys
}

// trimInterfaces removes what belongs to images that are no longer in force.
func (c *change) trimInterfaces() {
	want := c.interfaceBits()
	var index uint32
	var bits uint64
	differ := map[uint32]uint64{}
	entries := c.objects.InterfaceGroups.Iterate()
	for entries.Next(&index, &bits) {
		if want[index] != bits {
			differ[index] = want[index]
		}
	}
	for index, bits := range differ {
		if bits == 0 {
			_ = c.objects.InterfaceGroups.Delete(index)
		} else {
			_ = c.objects.InterfaceGroups.Put(index, bits)
		}
	}
	uppers := c.uppers()
	var key narthexUpperDevice
	var value uint8
	var gone []narthexUpperDevice
	for devices := c.objects.UpperDevices.Iterate(); devices.Next(&key, &value); {
		if !uppers[key] {
			gone = append(gone, key)
		}
	}
	for i := range gone {
		_ = c.objects.UpperDevices.Delete(&gone[i])
	}
}
