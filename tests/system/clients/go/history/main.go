// SPDX-License-Identifier: BSL-1.0

// Records what concurrent clients do with a memcached, and checks that the history is linearizable: that all operations on a key have an
// order that one memcached could have executed, in which each operation lies between its call and its return. The checker is porcupine.
//
//	history --address HOST:PORT [--clients N] [--keys N] [--seconds N] [--seed N]
//	history --check FILE      checks a history of JSON lines, as in model.go
//
// Prints the verdict as one JSON object.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"time"
)

type report struct {
	Operations int            `json:"operations"`
	Kinds      map[string]int `json:"kinds"`    // how often each kind had each answer, such as "cas EXISTS"
	Overlaps   int            `json:"overlaps"` // operations that began while another client's operation on the same key was in flight
	verdict
}

func main() {
	address := flag.String("address", "", "the memcached, as HOST:PORT")
	file := flag.String("check", "", "a file with a history, in place of a memcached")
	clients := flag.Int("clients", 4, "concurrent clients")
	keys := flag.Int("keys", 20, "keys in use at a time")
	seconds := flag.Float64("seconds", 10, "time to record")
	seed := flag.Int64("seed", 1, "of the random choices")
	limit := flag.Float64("limit", 300, "seconds after which the verdict is Unknown")
	flag.Parse()
	var history []operation
	var err error
	if *file != "" {
		history, err = read(*file)
	} else {
		history, err = record(*address, *clients, *keys, time.Duration(*seconds*float64(time.Second)), *seed)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "history:", err)
		os.Exit(1)
	}
	result := report{Operations: len(history), Kinds: map[string]int{}, Overlaps: overlaps(history)}
	for _, op := range history {
		result.Kinds[op.Kind+" "+op.Answer]++
	}
	result.verdict = check(history, time.Duration(*limit*float64(time.Second)))
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		fmt.Fprintln(os.Stderr, "history:", err)
		os.Exit(1)
	}
}

func read(path string) ([]operation, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var history []operation
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var op operation
		if err := json.Unmarshal(lines.Bytes(), &op); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, len(history)+1, err)
		}
		history = append(history, op)
	}
	return history, nil
}

func overlaps(history []operation) int {
	ordered := append([]operation(nil), history...)
	sort.Slice(ordered, func(one, other int) bool { return ordered[one].CallNs < ordered[other].CallNs })
	latest := map[string]int64{} // the last return of a key's earlier operations
	count := 0
	for _, op := range ordered {
		if op.CallNs < latest[op.Key] {
			count++
		}
		if op.ReturnNs > latest[op.Key] {
			latest[op.Key] = op.ReturnNs
		}
	}
	return count
}
