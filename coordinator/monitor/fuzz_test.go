package monitor

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"io"
	"net"
	"net/rpc"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/trommel-dev/trommel/instrumentation/wire"
)

// How FuzzServe sends its bytes.
const (
	asTheyAre  byte = iota
	inAStream       // of yamux
	afterHello      // in the stream of a process whose Hello was accepted
	waysToSend
)

// FuzzServe sends bytes to a monitor, as any program that finds its address can, and as a broken process under test
// may. The monitor ends the connection; it neither panics nor hangs.
func FuzzServe(f *testing.F) {
	observed := call{".Observe", wire.Observation{Call: 1, Phase: wire.Before, Kind: "database", Name: "db"}}
	for _, token := range []string{token, "wrong"} {
		first := hello("db")
		first.Token = token
		greeting := call{".Hello", first}
		calls := encoded(f, greeting, observed)
		f.Add(inAStream, calls)
		f.Add(asTheyAre, framed(calls))
		f.Add(afterHello, calls[len(encoded(f, greeting)):])
	}
	f.Add(inAStream, encoded(f, observed))
	f.Add(asTheyAre, []byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add(asTheyAre, []byte{0, 1, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, way byte, data []byte) {
		m, err := Listen(Config{Address: "tcp://127.0.0.1:0", Token: token, AckTimeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		ours, theirs := net.Pipe()
		m.wg.Go(func() { m.serve(theirs) })
		var others sync.WaitGroup
		stop := make(chan struct{})
		others.Go(func() {
			for {
				select {
				case e := <-m.Events():
					e.Release()
				case <-stop:
					return
				}
			}
		})
		_ = ours.SetWriteDeadline(time.Now().Add(10 * time.Second))
		switch way % waysToSend {
		case afterHello:
			sendAfterHello(t, ours, data)
		case inAStream:
			data = framed(data)
			fallthrough
		case asTheyAre:
			others.Go(func() { _, _ = io.Copy(io.Discard, ours) })
			_, _ = ours.Write(data)
		}
		_ = ours.Close()
		_ = m.Close() // hangs if one of its goroutines does
		close(stop)
		others.Wait()
	})
}

// sendAfterHello opens a session as a process under test does, and sends the data where its next call would be.
func sendAfterHello(t *testing.T, conn net.Conn, data []byte) {
	t.Helper()
	config := yamux.DefaultConfig()
	config.LogOutput = io.Discard
	session, err := yamux.Client(conn, config)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	stream, err := session.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Write(encoded(t, call{".Hello", hello("db")})); err != nil {
		t.Fatal(err)
	}
	var answer rpc.Response
	var welcome wire.Welcome
	in := gob.NewDecoder(stream)
	if err := errors.Join(in.Decode(&answer), in.Decode(&welcome)); err != nil || welcome.Reject != "" {
		t.Fatalf("not accepted: %v %s %s", err, answer.Error, welcome.Reject)
	}
	_, _ = stream.Write(data)
	// The data has been read when an answer comes, or the end: a broken call has no answer.
	_ = stream.Close()
	_, _ = io.Copy(io.Discard, stream)
}

// framed puts data into the frames of yamux: a stream that is opened, the data, and its end.
func framed(data []byte) []byte {
	const typeData, flagOpen, flagEnd = 0, 1, 4
	frame := func(flags uint16, payload []byte) []byte {
		header := []byte{0, typeData}
		header = binary.BigEndian.AppendUint16(header, flags)
		header = binary.BigEndian.AppendUint32(header, 1)
		return append(binary.BigEndian.AppendUint32(header, uint32(len(payload))), payload...)
	}
	return append(frame(flagOpen, data), frame(flagEnd, nil)...)
}

// call is a call of the monitor's service.
type call struct {
	method   string
	argument any
}

// encoded are calls as a client of net/rpc writes them.
func encoded(t testing.TB, calls ...call) []byte {
	t.Helper()
	var b bytes.Buffer
	e := gob.NewEncoder(&b)
	for i, c := range calls {
		request := rpc.Request{ServiceMethod: wire.MonitorService + c.method, Seq: uint64(i)}
		for _, v := range []any{request, c.argument} {
			if err := e.Encode(v); err != nil {
				t.Fatal(err)
			}
		}
	}
	return b.Bytes()
}
