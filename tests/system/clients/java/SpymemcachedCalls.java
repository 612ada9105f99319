// SPDX-License-Identifier: BSL-1.0
// Every call of spymemcached, in the text and in the binary protocol, printed as ../transcript.py describes. Arguments: host, port.

import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;
import java.util.logging.Logger;
import net.spy.memcached.CASValue;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.ConnectionObserver;
import net.spy.memcached.FailureMode;
import net.spy.memcached.MemcachedClient;
import net.spy.memcached.transcoders.SerializingTranscoder;
import net.spy.memcached.transcoders.Transcoder;

public final class SpymemcachedCalls {
  private static final int SECONDS = 30;
  private static final int CLIENTS = 4;
  // These methods send nothing to a server, or are parts that the other methods share.
  private static final List<String> LOCAL = Arrays.asList("getAvailableServers", "getUnavailableServers", "getNodeLocator", "getTranscoder",
      "addObserver", "removeObserver", "broadcastOp", "connectionEstablished", "connectionLost", "getOperationTimeout", "getConnection",
      "toString", "getExecutorService", "getTranscoderService");

  private interface Call {
    Object on(MemcachedClient client) throws Exception;
  }

  private final List<MemcachedClient> clients = new ArrayList<>();
  private final boolean binary;
  private int next = 0;

  private SpymemcachedCalls(InetSocketAddress address, boolean binary) throws Exception {
    this.binary = binary;
    for (int n = 0; n < CLIENTS; ++n) {
      ConnectionFactoryBuilder.Protocol protocol =
          binary ? ConnectionFactoryBuilder.Protocol.BINARY : ConnectionFactoryBuilder.Protocol.TEXT;
      clients.add(new MemcachedClient(new ConnectionFactoryBuilder().setProtocol(protocol).setOpTimeout(SECONDS * 1000)
          .setFailureMode(FailureMode.Retry).setDaemon(true).build(), Collections.singletonList(address)));
    }
  }

  /** Makes a call on the next client. Returns the answer. `stated`: the answer as text. */
  private Object call(String stated, String method, String parameters, Call call) {
    Object answer;
    try {
      answer = call.on(clients.get(next++ % clients.size()));
      if (answer instanceof Future) answer = ((Future<?>)answer).get(SECONDS, TimeUnit.SECONDS);
    } catch (ExecutionException error) {
      answer = error.getCause();
    } catch (Exception error) {
      answer = error;
    }
    String shown = text(answer);
    String wanted = shown.equals(stated) || !shorten(shown).equals(shorten(stated)) ? shorten(stated) : "other bytes than these";
    System.out.println("{\"method\": " + quoted(method) + ", \"arguments\": " + quoted(parameters) + ", \"answer\": "
        + quoted(shorten(shown)) + ", \"stated\": " + quoted(wanted) + "}");
    return answer;
  }

  private static String text(Object answer) {
    if (answer instanceof CASValue) return "CAS " + text(((CASValue<?>)answer).getValue());
    if (answer instanceof Map) return new TreeMap<>((Map<?, ?>)answer).toString();
    if (answer instanceof Exception) return answer.getClass().getSimpleName();
    return String.valueOf(answer);
  }

  private static String shorten(String text) {
    return text.length() <= 200 ? text : text.substring(0, 200) + "... of " + text.length();
  }

  private static String quoted(String text) {
    StringBuilder out = new StringBuilder("\"");
    for (char letter : text.toCharArray()) {
      if (letter < ' ' || letter == '"' || letter == '\\' || letter > '~') out.append(String.format("\\u%04x", (int)letter));
      else out.append(letter);
    }
    return out.append('"').toString();
  }

  private static String list(Iterable<String> words) {
    List<String> quoted = new ArrayList<>();
    for (String word : words) quoted.add(quoted(word));
    return "[" + String.join(", ", quoted) + "]";
  }

  private void storeAndRead() {
    Transcoder<Object> coder = new SerializingTranscoder();
    String large = "x".repeat(300_000);
    call("true", "set", "a", c -> c.set("a", 100, "1"));
    call("1", "get", "a", c -> c.get("a"));
    call("true", "set", "a, transcoder", c -> c.set("a", 0, "2", coder));
    call("2", "get", "a, transcoder", c -> c.get("a", coder));
    call("2", "asyncGet", "a", c -> c.asyncGet("a"));
    call("2", "asyncGet", "a, transcoder", c -> c.asyncGet("a", coder));
    call("null", "get", "missing", c -> c.get("missing"));
    call("true", "set", "large", c -> c.set("large", 0, large));  // with gzip
    call(large, "get", "large", c -> c.get("large"));
    call("true", "set", "number", c -> c.set("number", 0, 17L));
    call("17", "get", "number", c -> c.get("number"));
    call("true", "set", "empty", c -> c.set("empty", 0, ""));
    call("", "get", "empty", c -> c.get("empty"));
    call("false", "add", "a", c -> c.add("a", 0, "3"));
    call("true", "delete", "a", c -> c.delete("a"));
    call("false", "delete", "a", c -> c.delete("a"));
    call("true", "add", "a, transcoder", c -> c.add("a", 100, "3", coder));
    call("true", "replace", "a", c -> c.replace("a", 100, "4"));
    call("true", "replace", "a, transcoder", c -> c.replace("a", 0, "5", coder));
    call("false", "replace", "missing", c -> c.replace("missing", 0, "5"));
    call("true", "append", "a", c -> c.append("a", "6"));
    call("true", "append", "a, transcoder", c -> c.append("a", "7", coder));
    call("true", "prepend", "a", c -> c.prepend("a", "4"));
    call("true", "prepend", "a, transcoder", c -> c.prepend("a", "3", coder));
    call("34567", "get", "a", c -> c.get("a"));
    call("true", "append", "0, a", c -> c.append(0, "a", "8"));
    call("true", "append", "0, a, transcoder", c -> c.append(0, "a", "9", coder));
    call("true", "prepend", "0, a", c -> c.prepend(0, "a", "2"));
    call("true", "prepend", "0, a, transcoder", c -> c.prepend(0, "a", "1", coder));
    call("123456789", "get", "a", c -> c.get("a"));
    call("false", "append", "missing", c -> c.append("missing", "1"));
    call("false", "prepend", "missing", c -> c.prepend("missing", "1"));
  }

  private void uniques() {
    Transcoder<Object> coder = new SerializingTranscoder();
    call("true", "set", "u", c -> c.set("u", 0, "1"));
    long unique = unique(call("CAS 1", "gets", "u", c -> c.gets("u")));
    call("CAS 1", "gets", "u, transcoder", c -> c.gets("u", coder));
    call("CAS 1", "asyncGets", "u", c -> c.asyncGets("u"));
    call("CAS 1", "asyncGets", "u, transcoder", c -> c.asyncGets("u", coder));
    call("null", "gets", "missing", c -> c.gets("missing"));
    call("OK", "cas", "u", c -> c.cas("u", unique, "2"));
    call("EXISTS", "cas", "u", c -> c.cas("u", unique, "3"));
    call("NOT_FOUND", "cas", "missing", c -> c.cas("missing", unique, "3"));
    long second = unique(call("CAS 2", "gets", "u", c -> c.gets("u")));
    call("OK", "cas", "u, 100", c -> c.cas("u", second, 100, "3"));
    long third = unique(call("CAS 3", "gets", "u", c -> c.gets("u")));
    call("OK", "cas", "u, transcoder", c -> c.cas("u", third, "4", coder));
    call("EXISTS", "cas", "u, 100, transcoder", c -> c.cas("u", third, 100, "5", coder));
    call("EXISTS", "asyncCAS", "u", c -> c.asyncCAS("u", third, "5"));
    call("EXISTS", "asyncCAS", "u, 100", c -> c.asyncCAS("u", third, 100, "5"));
    call("EXISTS", "asyncCAS", "u, transcoder", c -> c.asyncCAS("u", third, "5", coder));
    long fourth = unique(call("CAS 4", "gets", "u", c -> c.gets("u")));
    call("OK", "asyncCAS", "u, 100, transcoder", c -> c.asyncCAS("u", fourth, 100, "5", coder));
    call("5", "get", "u", c -> c.get("u"));
    if (binary) {  // the text protocol's delete takes no unique
      call("false", "delete", "u, unique", c -> c.delete("u", fourth));
      long fifth = unique(call("CAS 5", "gets", "u", c -> c.gets("u")));
      call("true", "delete", "u, unique", c -> c.delete("u", fifth));
    }
  }

  private static long unique(Object answer) { return answer instanceof CASValue ? ((CASValue<?>)answer).getCas() : 0; }

  private void count() {
    call("true", "set", "n", c -> c.set("n", 0, "10"));
    call("15", "incr", "n, 5", c -> c.incr("n", 5));
    call("20", "incr", "n, 5L", c -> c.incr("n", 5L));
    call("19", "decr", "n, 1", c -> c.decr("n", 1));
    call("18", "decr", "n, 1L", c -> c.decr("n", 1L));
    call("19", "asyncIncr", "n, 1", c -> c.asyncIncr("n", 1));
    call("20", "asyncIncr", "n, 1L", c -> c.asyncIncr("n", 1L));
    call("19", "asyncDecr", "n, 1", c -> c.asyncDecr("n", 1));
    call("18", "asyncDecr", "n, 1L", c -> c.asyncDecr("n", 1L));
    call("0", "decr", "n, 100", c -> c.decr("n", 100));
    call("-1", "incr", "missing", c -> c.incr("missing", 1));
    call("-1", "decr", "missing", c -> c.decr("missing", 1));
    withDefault("10", "incr", c -> c.incr("n", 1, 10L), c -> c.incr("n", 1L, 10L));
    withDefault("10", "incr", c -> c.incr("n", 1, 10L, 100), c -> c.incr("n", 1L, 10L, 100));
    withDefault("10", "decr", c -> c.decr("n", 1, 10L), c -> c.decr("n", 1L, 10L));
    withDefault("10", "decr", c -> c.decr("n", 1, 10L, 100), c -> c.decr("n", 1L, 10L, 100));
    if (binary) {  // the library makes these calls in the binary protocol only
      withDefault("10", "asyncIncr", c -> c.asyncIncr("n", 1, 10L), c -> c.asyncIncr("n", 1L, 10L));
      withDefault("10", "asyncIncr", c -> c.asyncIncr("n", 1, 10L, 100), c -> c.asyncIncr("n", 1L, 10L, 100));
      withDefault("10", "asyncDecr", c -> c.asyncDecr("n", 1, 10L), c -> c.asyncDecr("n", 1L, 10L));
      withDefault("10", "asyncDecr", c -> c.asyncDecr("n", 1, 10L, 100), c -> c.asyncDecr("n", 1L, 10L, 100));
    }
  }

  /** Makes the first call without an item, and the second with the item that the first one made. */
  private void withDefault(String initial, String method, Call first, Call second) {
    call("true", "delete", "n", c -> c.delete("n"));
    call(initial, method, "n, 1, 10", first);
    call(method.toLowerCase().endsWith("incr") ? "11" : "9", method, "n, 1L, 10", second);
  }

  private void manyAndTouch() {
    Transcoder<Object> coder = new SerializingTranscoder();
    List<String> names = new ArrayList<>(Collections.singletonList("missing"));
    Map<String, String> values = new TreeMap<>();
    for (int n = 0; n < 50; ++n) {
      String name = "m" + n, value = "" + n;
      names.add(name);
      values.put(name, value);
      call("true", "set", name, c -> c.set(name, 0, value));
    }
    String all = values.toString();
    call(all, "getBulk", "collection", c -> c.getBulk(names));
    call(all, "getBulk", "iterator", c -> c.getBulk(names.iterator()));
    call(all, "getBulk", "collection, transcoder", c -> c.getBulk(names, coder));
    call(all, "getBulk", "iterator, transcoder", c -> c.getBulk(names.iterator(), coder));
    call("{m1=1, m2=2}", "getBulk", "names", c -> c.getBulk("m1", "m2", "missing"));
    call("{m1=1, m2=2}", "getBulk", "transcoder, names", c -> c.getBulk(coder, "m1", "m2"));
    call(all, "asyncGetBulk", "collection", c -> c.asyncGetBulk(names));
    call(all, "asyncGetBulk", "iterator", c -> c.asyncGetBulk(names.iterator()));
    call(all, "asyncGetBulk", "collection, transcoder", c -> c.asyncGetBulk(names, coder));
    call(all, "asyncGetBulk", "iterator, transcoder", c -> c.asyncGetBulk(names.iterator(), coder));
    call(all, "asyncGetBulk", "collection, transcoders",
        c -> c.asyncGetBulk(names, Collections.nCopies(names.size(), coder).iterator()));
    call(all, "asyncGetBulk", "iterator, transcoders",
        c -> c.asyncGetBulk(names.iterator(), Collections.nCopies(names.size(), coder).iterator()));
    call("{m1=1, m2=2}", "asyncGetBulk", "names", c -> c.asyncGetBulk("m1", "m2"));
    call("{m1=1, m2=2}", "asyncGetBulk", "transcoder, names", c -> c.asyncGetBulk(coder, "m1", "m2"));
    call("true", "touch", "m1", c -> c.touch("m1", 100));
    call("true", "touch", "m1, transcoder", c -> c.touch("m1", 100, coder));
    call("false", "touch", "missing", c -> c.touch("missing", 100));
    if (binary) {  // the library makes these calls in the binary protocol only
      call("CAS 1", "getAndTouch", "m1", c -> c.getAndTouch("m1", 100));
      call("CAS 1", "getAndTouch", "m1, transcoder", c -> c.getAndTouch("m1", 100, coder));
      call("CAS 1", "asyncGetAndTouch", "m1", c -> c.asyncGetAndTouch("m1", 100));
      call("CAS 1", "asyncGetAndTouch", "m1, transcoder", c -> c.asyncGetAndTouch("m1", 100, coder));
      call("null", "getAndTouch", "missing", c -> c.getAndTouch("missing", 100));
    }
  }

  private void ofTheServer() {
    call("true", "getVersions", "", c -> c.getVersions().values().iterator().next().matches("[0-9.]+.*"));
    List<String> names = Arrays.asList("pid", "uptime", "version", "curr_items", "limit_maxbytes", "cmd_get");
    call("true", "getStats", "", c -> c.getStats().values().iterator().next().keySet().containsAll(names));
    call("true", "getStats", "settings", c -> c.getStats("settings").values().iterator().next().containsKey("maxbytes"));
    if (binary) call("[Unknown, command]", "listSaslMechanisms", "", c -> c.listSaslMechanisms());  // the words of the error are the list
    call("true", "set", "flushed", c -> c.set("flushed", 0, "1"));
    call("true", "flush", "", c -> c.flush());
    call("null", "get", "flushed", c -> c.get("flushed"));
    call("true", "flush", "100000", c -> c.flush(100_000));
    call("true", "waitForQueues", "", c -> c.waitForQueues(SECONDS, TimeUnit.SECONDS));
    for (int n = 0; n < CLIENTS / 2; ++n) {
      call("true", "shutdown", "seconds", c -> c.shutdown(SECONDS, TimeUnit.SECONDS));
    }
    for (int n = CLIENTS / 2; n < CLIENTS; ++n) {
      call("null", "shutdown", "", c -> {
        c.shutdown();
        return null;
      });
    }
  }

  public static void main(String[] words) throws Exception {
    Logger.getLogger("net.spy.memcached").setLevel(Level.OFF);
    System.setProperty("net.spy.log.LoggerImpl", "net.spy.memcached.compat.log.SunLogger");
    Set<String> methods = new TreeSet<>();
    for (Method method : MemcachedClient.class.getDeclaredMethods()) {
      if (Modifier.isPublic(method.getModifiers()) && !method.isSynthetic()) methods.add(method.getName());
    }
    for (boolean binary : new boolean[] {false, true}) {
      SpymemcachedCalls calls = new SpymemcachedCalls(new InetSocketAddress(words[0], Integer.parseInt(words[1])), binary);
      calls.storeAndRead();
      calls.uniques();
      calls.count();
      calls.manyAndTouch();
      calls.ofTheServer();
    }
    System.out.println("{\"class\": \"MemcachedClient\", \"methods\": " + list(methods) + ", \"local\": " + list(LOCAL) + "}");
    System.exit(0);
  }
}
