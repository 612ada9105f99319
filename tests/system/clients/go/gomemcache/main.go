// SPDX-License-Identifier: BSL-1.0

// Every call of gomemcache, printed as ../transcript.py describes. Argument: host:port.
package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"reflect"
	"sort"
	"strings"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

const connections = 4

type transcript struct {
	clients []*memcache.Client
	next    int
}

// Calls `method` on the next client. Returns its first result. `stated`: all results as text.
func (t *transcript) call(stated, method string, arguments ...any) any {
	client := t.clients[t.next]
	t.next = (t.next + 1) % len(t.clients)
	values := make([]reflect.Value, len(arguments))
	words := make([]string, len(arguments))
	for at, argument := range arguments {
		values[at] = reflect.ValueOf(argument)
		words[at] = shorten(text(argument))
	}
	results := reflect.ValueOf(client).MethodByName(method).Call(values)
	shown := make([]string, len(results))
	for at, result := range results {
		shown[at] = text(result.Interface())
	}
	answer, wanted := strings.Join(shown, " "), shorten(stated)
	if answer != stated && shorten(answer) == wanted {
		wanted = "other bytes than these"
	}
	emit(map[string]any{"method": method, "arguments": strings.Join(words, ", "), "answer": shorten(answer), "stated": wanted})
	return results[0].Interface()
}

func (t *transcript) alone(client int) *transcript {
	return &transcript{clients: t.clients[client : client+1]}
}

func text(value any) string {
	switch value := value.(type) {
	case nil:
		return "ok"
	case error:
		return value.Error()
	case *memcache.Item:
		if value == nil {
			return "none"
		}
		return fmt.Sprintf("%s=%s/%d", value.Key, value.Value, value.Flags)
	case map[string]*memcache.Item:
		var items []string
		for _, item := range value {
			items = append(items, text(item))
		}
		sort.Strings(items)
		return "[" + strings.Join(items, " ") + "]"
	default:
		return fmt.Sprint(value)
	}
}

func shorten(text string) string {
	if len(text) > 200 {
		return fmt.Sprintf("%s... of %d bytes", text[:200], len(text))
	}
	return text
}

func emit(line map[string]any) {
	if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
		panic(err)
	}
}

func item(key, value string) *memcache.Item {
	return &memcache.Item{Key: key, Value: []byte(value)}
}

func main() {
	var all transcript
	for n := 0; n < connections; n++ {
		client := memcache.New(os.Args[1])
		client.Timeout = 30 * time.Second
		all.clients = append(all.clients, client)
	}
	storeAndRead(&all)
	countAndTouch(&all)
	many(&all)
	all.call("ok", "Ping")
	all.call("ok", "Set", item("flushed", "1"))
	all.call("ok", "FlushAll")
	all.call("none memcache: cache miss", "Get", "flushed")
	all.call("ok", "Set", item("flushed", "1"))
	all.call("ok", "DeleteAll")
	all.call("none memcache: cache miss", "Get", "flushed")
	for n := range all.clients {
		all.alone(n).call("ok", "Close")
		all.alone(n).call("ok", "Ping") // the client connects again
		all.alone(n).call("ok", "Close")
	}
	selectors(os.Args[1])
	kind := reflect.TypeOf(&memcache.Client{})
	var methods []string
	for n := 0; n < kind.NumMethod(); n++ {
		methods = append(methods, kind.Method(n).Name)
	}
	emit(map[string]any{"class": "Client", "methods": methods, "local": []string{}})
}

func storeAndRead(t *transcript) {
	t.call("ok", "Set", &memcache.Item{Key: "a", Value: []byte("1"), Flags: 0xffffffff, Expiration: 100})
	t.call("a=1/4294967295 ok", "Get", "a")
	t.call("none memcache: cache miss", "Get", "missing")
	t.call("none malformed: key is too long or contains invalid characters", "Get", "with blank")
	t.call("ok", "Set", item("large", strings.Repeat("x", 300_000)))
	t.call("large="+strings.Repeat("x", 300_000)+"/0 ok", "Get", "large")
	t.call("ok", "Set", item("empty", ""))
	t.call("empty=/0 ok", "Get", "empty")
	t.call("memcache: item not stored", "Add", item("a", "2"))
	t.call("ok", "Delete", "a")
	t.call("memcache: cache miss", "Delete", "a")
	t.call("ok", "Add", item("a", "2"))
	t.call("ok", "Replace", item("a", "3"))
	t.call("memcache: item not stored", "Replace", item("missing", "3"))
	t.call("ok", "Append", item("a", "4"))
	t.call("ok", "Prepend", item("a", "2"))
	t.call("memcache: item not stored", "Append", item("missing", "4"))
	t.call("memcache: item not stored", "Prepend", item("missing", "4"))
	first, _ := t.call("a=234/0 ok", "Get", "a").(*memcache.Item)
	second, _ := t.call("a=234/0 ok", "Get", "a").(*memcache.Item)
	first.Value, second.Value = []byte("first"), []byte("second")
	t.call("ok", "CompareAndSwap", first)
	t.call("memcache: compare-and-swap conflict", "CompareAndSwap", second)
	third, _ := t.call("a=first/0 ok", "Get", "a").(*memcache.Item)
	t.call("ok", "Delete", "a")
	t.call("memcache: cache miss", "CompareAndSwap", third)
}

func countAndTouch(t *transcript) {
	t.call("ok", "Set", item("n", "10"))
	t.call("15 ok", "Increment", "n", uint64(5))
	t.call("0 ok", "Decrement", "n", uint64(20))
	t.call("0 memcache: cache miss", "Increment", "missing", uint64(1))
	t.call("0 memcache: cache miss", "Decrement", "missing", uint64(1))
	t.call("ok", "Set", item("n", "18446744073709551615"))
	t.call("0 ok", "Increment", "n", uint64(1))
	t.call("ok", "Set", item("word", "abc"))
	t.call("0 memcache: client error: cannot increment or decrement non-numeric value", "Increment", "word", uint64(1))
	t.call("ok", "Touch", "word", int32(100))
	t.call("memcache: cache miss", "Touch", "missing", int32(100))
	t.call("word=abc/0 ok", "GetAndTouch", "word", int32(100))
	t.call("none memcache: cache miss", "GetAndTouch", "missing", int32(100))
	t.call("ok", "Touch", "word", int32(-1))
	t.call("none memcache: cache miss", "Get", "word")
}

func many(t *transcript) {
	keys, items := []string{"missing"}, []string{}
	for n := 0; n < 50; n++ {
		key := fmt.Sprintf("m%d", n)
		keys, items = append(keys, key), append(items, fmt.Sprintf("%s=%d/0", key, n))
		t.call("ok", "Set", item(key, fmt.Sprint(n)))
	}
	sort.Strings(items)
	t.call("["+strings.Join(items, " ")+"] ok", "GetMulti", keys)
	t.call("[] ok", "GetMulti", []string{"missing"})
}

// A list of servers, and a client that is made from it.
func selectors(address string) {
	var servers memcache.ServerList
	must(servers.SetServers(address))
	picked, err := servers.PickServer("a")
	must(err)
	must(servers.Each(func(each net.Addr) error {
		if each.String() != picked.String() {
			return fmt.Errorf("%v is not %v", each, picked)
		}
		return nil
	}))
	client := memcache.NewFromSelector(&servers)
	client.Timeout = 30 * time.Second
	(&transcript{clients: []*memcache.Client{client}}).call("ok", "Ping")
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
