package requests

import (
	"net"
	"testing"
)

func TestBeginsHTTP(t *testing.T) {
	for _, tt := range []struct {
		data        string
		yes, unsure bool
		reason      string
	}{
		{data: "", unsure: true},
		{data: "GE", unsure: true},
		{data: "GET /a HTTP/1.", unsure: true},
		{data: "GET /a HTTP/1.1\r\nHost: x\r\n", yes: true},
		{data: "POST /a HTTP/1.0\n", yes: true},
		{data: preface, yes: true},
		{data: "\x16\x03\x01\x02\x00", reason: "TLS"},
		{data: "EHLO x.example\r\n", reason: "SMTP"},
		{data: "*1\r\n$4\r\nPING\r\n", reason: "Redis"},
		{data: "get key\r\n", reason: "memcached"},
		{data: " GET / HTTP/1.1\r\n"},
	} {
		if yes, unsure := beginsHTTP([]byte(tt.data)); yes != tt.yes || unsure != tt.unsure {
			t.Errorf("%q (%s): %v, unsure %v", tt.data, tt.reason, yes, unsure)
		}
	}
}

// TestHear checks who speaks first, and that nothing that was said gets lost.
func TestHear(t *testing.T) {
	type line struct {
		byServer bool
		text     string
	}
	for _, tt := range []struct {
		name   string
		said   []line
		closed bool // by the client
		isHTTP bool
	}{
		{"request", []line{{false, "GET / HTTP/1.1\r\n"}}, false, true},
		{"request in pieces", []line{{false, "G"}, {false, "ET / HT"}, {false, "TP/1.1\r\nHost:"}}, false, true},
		{"HTTP/2", []line{{false, preface}}, false, true},
		{"HTTP/2, server first", []line{{true, settings}, {false, preface}}, false, true},
		{"TLS", []line{{false, "\x16\x03\x01"}}, false, false},
		{"server first", []line{{true, "220 mail"}}, false, false},
		{"server interrupts", []line{{false, "CONNECT"}, {true, "INFO {}\r\n"}}, false, false},
		{"client says nothing", nil, true, false},
		{"client ends in the middle", []line{{false, "GET /"}}, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pair := func() (far, near net.Conn) {
				far, near, err := SocketPair()
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					_ = far.Close()
					_ = near.Close()
				})
				return far, near
			}
			client, nearClient := pair()
			server, nearServer := pair()
			type result struct {
				fromClient, fromServer string
				isHTTP                 bool
			}
			done := make(chan result, 1)
			go func() {
				fromClient, fromServer, isHTTP := hear(nearClient, nearServer)
				done <- result{string(fromClient), string(fromServer), isHTTP}
			}()
			var said result
			for _, l := range tt.said {
				conn, all := client, &said.fromClient
				if l.byServer {
					conn, all = server, &said.fromServer
				}
				if _, err := conn.Write([]byte(l.text)); err != nil {
					t.Fatal(err)
				}
				*all += l.text
			}
			if tt.closed {
				_ = client.Close()
			}
			got := <-done
			// The rest is still in the connections.
			rest := func(conn net.Conn, have, all string) string {
				buffer := make([]byte, len(all)-len(have))
				n, _ := conn.Read(buffer)
				return have + string(buffer[:n])
			}
			if len(got.fromClient) < len(said.fromClient) {
				got.fromClient = rest(nearClient, got.fromClient, said.fromClient)
			}
			if len(got.fromServer) < len(said.fromServer) {
				got.fromServer = rest(nearServer, got.fromServer, said.fromServer)
			}
			said.isHTTP = tt.isHTTP
			if got != said {
				t.Errorf("got  %+v\nwant %+v", got, said)
			}
		})
	}
}
