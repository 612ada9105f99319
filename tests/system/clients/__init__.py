# SPDX-License-Identifier: BSL-1.0
"""Third-party clients of memcached as programs that make every call of a client library and print the answers (transcript.py).

judge.py runs them for tests/system/stock_clients_test.py. tools/client_programs.py builds those that are not in Python. go/history is no
client library: it records histories of concurrent clients and checks them (tests/system/histories_test.py).
"""
