// SPDX-License-Identifier: BSL-1.0
package main

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"
)

// One operation of a history, as recorded and as written to a file. Times are of one monotonic clock.
type operation struct {
	Client   int    `json:"client"`
	Kind     string `json:"kind"` // get gets set add cas incr delete touch
	Key      string `json:"key"`
	Value    uint64 `json:"value,omitempty"`  // set, add, cas: the number that is stored; incr: the number that is added
	Unique   uint64 `json:"unique,omitempty"` // cas: the CAS unique that was given
	Answer   string `json:"answer"`           // the reply's first word: STORED, VALUE, END ...; NUMBER for a number
	Got      uint64 `json:"got,omitempty"`    // get, gets, incr: the number in the reply
	GotCas   uint64 `json:"got_cas,omitempty"`
	CallNs   int64  `json:"call_ns"`
	ReturnNs int64  `json:"return_ns"`
}

// What a memcached has under one key. Only `gets` shows a CAS unique. So a model does not know the unique of a new value (`unique` is 0)
// until a `gets` shows it. The new unique MUST differ from the last one that was known before.
type item struct {
	present  bool
	value    uint64
	unique   uint64
	previous uint64
}

// The item after a write, whose unique is not known yet.
func (it item) written(value uint64) item {
	previous := it.previous
	if it.unique != 0 {
		previous = it.unique
	}
	return item{present: true, value: value, previous: previous}
}

func (it item) removed() item {
	after := it.written(0)
	after.present = false
	return after
}

// Returns whether a memcached in state `it` can answer `op` so, and its state afterwards.
func step(it item, op operation) (bool, item) {
	switch op.Kind {
	case "set":
		return op.Answer == "STORED", it.written(op.Value)
	case "add":
		if it.present {
			return op.Answer == "NOT_STORED", it
		}
		return op.Answer == "STORED", it.written(op.Value)
	case "get", "gets":
		if !it.present {
			return op.Answer == "END", it
		}
		if op.Answer != "VALUE" || op.Got != it.value {
			return false, it
		}
		if op.Kind == "get" {
			return true, it
		}
		if it.unique == 0 {
			it.unique = op.GotCas
			return op.GotCas != 0 && op.GotCas != it.previous, it
		}
		return op.GotCas == it.unique, it
	case "cas":
		switch {
		case !it.present:
			return op.Answer == "NOT_FOUND", it
		case it.unique == op.Unique:
			return op.Answer == "STORED", it.written(op.Value)
		default: // an unknown unique cannot be the given one, because no client has seen it
			return op.Answer == "EXISTS", it
		}
	case "incr":
		if !it.present {
			return op.Answer == "NOT_FOUND", it
		}
		sum := it.value + op.Value // wraps around at 2^64
		return op.Answer == "NUMBER" && op.Got == sum, it.written(sum)
	case "delete":
		if !it.present {
			return op.Answer == "NOT_FOUND", it
		}
		return op.Answer == "DELETED", it.removed()
	case "touch":
		if !it.present {
			return op.Answer == "NOT_FOUND", it
		}
		return op.Answer == "TOUCHED", it
	}
	return false, it
}

// The keys are independent, so each key's operations are checked alone.
var memcached = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		places := map[string]int{}
		var parts [][]porcupine.Operation
		for _, op := range history {
			key := op.Input.(operation).Key
			place, known := places[key]
			if !known {
				place = len(parts)
				places[key] = place
				parts = append(parts, nil)
			}
			parts[place] = append(parts[place], op)
		}
		return parts
	},
	Init: func() any { return item{} },
	Step: func(state, input, _ any) (bool, any) {
		possible, after := step(state.(item), input.(operation))
		return possible, after
	},
	DescribeOperation: func(input, _ any) string {
		op := input.(operation)
		return fmt.Sprintf("%s %d %d -> %s %d %d", op.Kind, op.Value, op.Unique, op.Answer, op.Got, op.GotCas)
	},
}

type verdict struct {
	Result     string   `json:"result"` // Ok, Illegal, Unknown (out of time)
	Partitions int      `json:"partitions"`
	Seconds    float64  `json:"check_seconds"`
	Details    []string `json:"details,omitempty"` // of the first key whose operations have no order
}

const detailsMax = 12

// Checks a history. It is Unknown after `limit`.
func check(history []operation, limit time.Duration) verdict {
	operations := make([]porcupine.Operation, len(history))
	for at, op := range history {
		operations[at] = porcupine.Operation{ClientId: op.Client, Input: op, Call: op.CallNs, Return: op.ReturnNs}
	}
	start := time.Now()
	deadline := start.Add(limit)
	found := verdict{Result: string(porcupine.Ok)}
	for _, part := range memcached.Partition(operations) {
		found.Partitions++
		model := memcached
		model.Partition = nil
		result, info := porcupine.CheckOperationsVerbose(model, part, time.Until(deadline))
		if result != porcupine.Ok {
			found.Result, found.Details = string(result), details(part, info)
			break
		}
		if time.Now().After(deadline) {
			found.Result = string(porcupine.Unknown)
			break
		}
	}
	found.Seconds = time.Since(start).Seconds()
	return found
}

// Describes the longest order that porcupine found: its last operations, and the first operations outside it.
func details(part []porcupine.Operation, info porcupine.LinearizationInfo) []string {
	var longest []int
	for _, orders := range info.PartialLinearizations() {
		for _, order := range orders {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	describe := func(at int) string {
		op := part[at]
		return fmt.Sprintf("client %d, %d to %d ns: %s", op.ClientId, op.Call, op.Return, memcached.DescribeOperation(op.Input, nil))
	}
	placed := map[int]bool{}
	for _, at := range longest {
		placed[at] = true
	}
	lines := []string{fmt.Sprintf("key %s: %d of %d operations have an order, whose last are:",
		part[0].Input.(operation).Key, len(longest), len(part))}
	for _, at := range longest[max(0, len(longest)-detailsMax):] {
		lines = append(lines, describe(at))
	}
	lines = append(lines, "the first without a place:")
	for at, left := 0, detailsMax; at < len(part) && left > 0; at++ {
		if !placed[at] {
			lines = append(lines, describe(at))
			left--
		}
	}
	return lines
}

func max(one, other int) int {
	if one > other {
		return one
	}
	return other
}
