// SPDX-License-Identifier: BSL-1.0
package main

import (
	"bufio"
	"fmt"
	"io"
	"math/rand"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// Each client uses several connections in turn, so that its operations arrive on different cores.
	connectionsPerClient = 8
	answerSeconds        = 60
	// All clients use `keys` keys at a time, and other ones after this time. The checker's work for a key grows with the square of its
	// operations.
	epochMs = 500
	// The pause between two connects. QEMU's user network listens with a backlog of one.
	connectPause = 10 * time.Millisecond
)

type connection struct {
	socket net.Conn
	reader *bufio.Reader
}

// Records what `clients` concurrent clients do with `keys` keys for a duration. The history has the operations of all clients.
func record(address string, clients, keys int, duration time.Duration, seed int64) ([]operation, error) {
	connections := make([][]*connection, clients)
	for client := range connections {
		for len(connections[client]) < connectionsPerClient {
			socket, err := net.DialTimeout("tcp", address, answerSeconds*time.Second)
			if err != nil {
				return nil, err
			}
			defer socket.Close()
			connections[client] = append(connections[client], &connection{socket, bufio.NewReader(socket)})
			time.Sleep(connectPause)
		}
	}
	histories := make([][]operation, clients)
	errors := make([]error, clients)
	start := time.Now()
	var running sync.WaitGroup
	for client := range connections {
		running.Add(1)
		go func(client int) {
			defer running.Done()
			worker := worker{client: client, keys: keys, seed: seed, random: rand.New(rand.NewSource(seed + int64(client))), start: start}
			histories[client], errors[client] = worker.run(connections[client], duration)
		}(client)
	}
	running.Wait()
	var all []operation
	for client := range histories {
		if errors[client] != nil {
			return nil, fmt.Errorf("client %d: %w", client, errors[client])
		}
		all = append(all, histories[client]...)
	}
	return all, nil
}

type worker struct {
	client  int
	keys    int
	seed    int64
	random  *rand.Rand
	start   time.Time
	stored  uint64
	uniques map[string]uint64 // the last CAS unique that this client has seen, by key
}

func (w *worker) run(connections []*connection, duration time.Duration) ([]operation, error) {
	var history []operation
	w.uniques = map[string]uint64{}
	for time.Since(w.start) < duration {
		op := w.choose()
		connection := connections[w.random.Intn(len(connections))]
		if err := connection.socket.SetDeadline(time.Now().Add(answerSeconds * time.Second)); err != nil {
			return nil, err
		}
		op.CallNs = time.Since(w.start).Nanoseconds()
		if err := connection.execute(&op); err != nil {
			return nil, fmt.Errorf("%s %s: %w", op.Kind, op.Key, err)
		}
		op.ReturnNs = time.Since(w.start).Nanoseconds()
		if op.Kind == "gets" && op.Answer == "VALUE" {
			w.uniques[op.Key] = op.GotCas
		}
		history = append(history, op)
	}
	return history, nil
}

// Returns the next operation. A value that is stored is a number that no other operation stores.
func (w *worker) choose() operation {
	epoch := time.Since(w.start).Milliseconds() / epochMs
	op := operation{Client: w.client, Key: fmt.Sprintf("h%d-%d-%d", w.seed, epoch, w.random.Intn(w.keys))}
	kinds := []string{"get", "get", "get", "gets", "gets", "set", "set", "cas", "cas", "incr", "incr", "add", "delete", "touch"}
	op.Kind = kinds[w.random.Intn(len(kinds))]
	switch op.Kind {
	case "cas":
		unique, seen := w.uniques[op.Key]
		if !seen {
			op.Kind = "gets"
			return op
		}
		op.Unique = unique
		fallthrough
	case "set", "add":
		w.stored++
		// The number keeps its count of digits when a test adds to it.
		op.Value = uint64(w.client+1)*1_000_000_000_000_000 + w.stored*1_000_000
	case "incr":
		op.Value = uint64(w.random.Intn(9)) + 1
	}
	return op
}

// Sends one operation and reads its reply into `op`.
func (c *connection) execute(op *operation) error {
	var request string
	value := strconv.FormatUint(op.Value, 10)
	switch op.Kind {
	case "set", "add":
		request = fmt.Sprintf("%s %s 0 0 %d\r\n%s\r\n", op.Kind, op.Key, len(value), value)
	case "cas":
		request = fmt.Sprintf("cas %s 0 0 %d %d\r\n%s\r\n", op.Key, len(value), op.Unique, value)
	case "incr":
		request = fmt.Sprintf("incr %s %s\r\n", op.Key, value)
	case "touch":
		request = fmt.Sprintf("touch %s 1000\r\n", op.Key)
	default:
		request = fmt.Sprintf("%s %s\r\n", op.Kind, op.Key)
	}
	if _, err := io.WriteString(c.socket, request); err != nil {
		return err
	}
	line, err := c.line()
	if err != nil {
		return err
	}
	words := strings.Fields(line)
	if len(words) == 0 {
		return fmt.Errorf("an empty line")
	}
	op.Answer = words[0]
	if op.Kind == "incr" && op.Answer != "NOT_FOUND" {
		op.Answer = "NUMBER"
		op.Got, err = strconv.ParseUint(line, 10, 64)
		return err
	}
	if op.Answer == "VALUE" {
		return c.value(op, words)
	}
	return nil
}

// Reads the rest of a reply that has begun with "VALUE <key> <flags> <bytes> [<unique>]".
func (c *connection) value(op *operation, words []string) error {
	if len(words) != map[string]int{"get": 4, "gets": 5}[op.Kind] || words[1] != op.Key || words[2] != "0" {
		return fmt.Errorf("answered %q", strings.Join(words, " "))
	}
	data, err := c.line()
	if err != nil {
		return err
	}
	if strconv.Itoa(len(data)) != words[3] {
		return fmt.Errorf("%d bytes in place of %s", len(data), words[3])
	}
	if op.Got, err = strconv.ParseUint(strings.TrimRight(data, " "), 10, 64); err != nil {
		return err
	}
	if op.Kind == "gets" {
		if op.GotCas, err = strconv.ParseUint(words[4], 10, 64); err != nil {
			return err
		}
	}
	end, err := c.line()
	if err == nil && end != "END" {
		err = fmt.Errorf("%q in place of END", end)
	}
	return err
}

func (c *connection) line() (string, error) {
	line, err := c.reader.ReadString('\n')
	if err != nil {
		return "", err
	}
	if !strings.HasSuffix(line, "\r\n") {
		return "", fmt.Errorf("a line must end with CR LF: %q", line)
	}
	return line[:len(line)-2], nil
}
