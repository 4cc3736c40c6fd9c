// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// sweepAge is how long a flow has to be without a new request before Sweep asks whether its
// connection still exists.
const sweepAge = 90 * time.Second

// Sweep forgets connections that ended without their end being seen, such as one that died
// before the server's socket was made, and looks no more at ports of services of old. Without it they would take
// up entries, and nothing else. Once there is no older socket any more it lets the tracepoints go. The calling
// thread is in the network namespace of the targets.
func (in *Instance) Sweep() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.objects == nil {
		return errors.New("instance is closed")
	}
	if !in.objects.hasGate() {
		return nil
	}
	t, err := now()
	if err != nil {
		return err
	}
	var key narthexFlowKey
	var f narthexFlow
	var old []narthexFlowKey
	var on []uint32
	ports := map[uint16]bool{}
	flows := in.objects.Flows.Iterate()
	for flows.Next(&key, &f) {
		ports[key.LocalPort] = true
		if t > f.Since && t-f.Since > uint64(sweepAge) {
			old = append(old, key)
			on = append(on, f.Ifindex)
		}
	}
	var b narthexBriefFlow
	briefs := in.objects.BriefFlows.Iterate()
	for briefs.Next(&key, &b) {
		ports[key.LocalPort] = true
		if age := uint64(uint32(t>>20)-b.AskedAt) << 20; age > uint64(sweepAge) {
			old, on = append(old, key), append(on, b.Ifindex)
		}
	}
	if err := errors.Join(flows.Err(), briefs.Err()); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return fmt.Errorf("looking for connections that have ended: %w", err)
	}
	for i := range old {
		if err := in.objects.sweep(&old[i], on[i]); err != nil {
			return err
		}
	}
	if err := in.objects.sweepOpenings(); err != nil {
		return err
	}
	if in.applied.Tables == nil {
		return nil
	}
	if err := in.followSockets(&in.applied); err != nil {
		return err
	}
	return in.objects.trimGatePorts(in.applied.Tables.Services, ports)
}

// sweep forgets a connection that came on an interface, if its end was missed.
func (o *objects) sweep(key *narthexFlowKey, on uint32) error {
	frame := make([]byte, 64)
	copy(frame, unsafe.Slice((*byte)(unsafe.Pointer(key)), unsafe.Sizeof(*key)))
	_, err := o.NarthexGateSweep.Run(&ebpf.RunOptions{Data: frame, Context: skbContext{Ifindex: on}})
	if errors.Is(err, unix.ENODEV) { // no socket is on what is no more
		_, err = o.NarthexGateSweep.Run(&ebpf.RunOptions{Data: frame})
	}
	if err != nil {
		return fmt.Errorf("forgetting a connection: %w", err)
	}
	return nil
}
