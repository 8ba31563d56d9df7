package monitor

import (
	"bufio"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"sync/atomic"
)

// codec is net/rpc's gob server codec with one addition: every message except Hello is passed to arrived from the
// reading loop, where the order of arrival is still known. net/rpc does not export its codec.
type codec struct {
	conn    io.ReadWriteCloser
	reader  *limitedReader
	decoder *gob.Decoder
	encoder *gob.Encoder
	buffer  *bufio.Writer
	arrived func(message any) // set before the codec is used
	closed  atomic.Bool
}

// errTooMuch closes a connection that sends too much before its Hello is accepted.
var errTooMuch = errors.New("too much data before the token")

// limitedReader reads a limited number of bytes until the limit is lifted.
type limitedReader struct {
	io.Reader
	left   int64
	lifted atomic.Bool
}

func (r *limitedReader) Read(p []byte) (int, error) {
	if r.lifted.Load() {
		return r.Reader.Read(p)
	}
	if r.left <= 0 {
		return 0, errTooMuch
	}
	n, err := r.Reader.Read(p[:min(int64(len(p)), r.left)])
	r.left -= int64(n)
	return n, err
}

var _ rpc.ServerCodec = (*codec)(nil)

// newCodec returns a codec that reads at most limit bytes until trust is called.
func newCodec(conn io.ReadWriteCloser, limit int64) *codec {
	buffer := bufio.NewWriter(conn)
	reader := &limitedReader{Reader: conn, left: limit}
	return &codec{
		conn:    conn,
		reader:  reader,
		decoder: gob.NewDecoder(bufio.NewReader(reader)),
		encoder: gob.NewEncoder(buffer),
		buffer:  buffer,
	}
}

func (c *codec) trust() { c.reader.lifted.Store(true) }

// decode reads the next value. encoding/gob of Go 1.26 panics if two values that are to be ignored, as those for an
// unknown method are, have the same undefined type: it remembers the type before it knows how to ignore it. Whoever
// can connect could end this process by that; now it only ends the connection.
func (c *codec) decode(into any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("not gob: %v", p)
			_ = c.Close() // net/rpc would go on with the next call
		}
	}()
	return c.decoder.Decode(into)
}

func (c *codec) ReadRequestHeader(r *rpc.Request) error { return c.decode(r) }

func (c *codec) ReadRequestBody(body any) error {
	if err := c.decode(body); err != nil {
		return err
	}
	c.arrived(body)
	return nil
}

func (c *codec) WriteResponse(r *rpc.Response, body any) error {
	err := c.encoder.Encode(r)
	if err == nil {
		err = c.encoder.Encode(body)
	}
	if err == nil {
		err = c.buffer.Flush()
	}
	if err != nil {
		// The stream is corrupt. Closing it ends the session and all its holds.
		_ = c.Close()
	}
	return err
}

func (c *codec) Close() error {
	if c.closed.Swap(true) {
		return nil // both net/rpc's reading loop and WriteResponse call it
	}
	return c.conn.Close()
}
