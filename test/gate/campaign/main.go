// SPDX-License-Identifier: Apache-2.0

// Command campaign gives the gate's source, compiled natively, so many random packets.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"narthex/test/gate"
)

func main() {
	n := flag.Int("n", 10_000_000, "packets")
	seed := flag.Uint64("seed", 1, "of the random numbers")
	only := flag.Int64("episode", -1, "run but this one, and say all of it")
	events := flag.Int("events", 400, "of an episode")
	flag.Parse()
	if *only >= 0 {
		_, err := gate.Random(*seed, uint64(*only), *events).Run(os.Stdout)
		fmt.Println(err)
		return
	}
	start := time.Now()
	packets, number := 0, uint64(0)
	for ; packets < *n; number++ {
		e := gate.Random(*seed, number, *events)
		p, err := e.Run(nil)
		packets += p
		if err != nil {
			fmt.Printf("seed %d, episode %d: %v\n", *seed, number, err)
			e = e.Shorten()
			_, err = e.Run(os.Stdout)
			fmt.Printf("seed %d, episode %d, shortened to %d events: %v\n", *seed, number, len(e.Events), err)
			os.Exit(1)
		}
	}
	fmt.Printf("%d packets in %d episodes, %v\n", packets, number, time.Since(start).Round(time.Millisecond))
}
