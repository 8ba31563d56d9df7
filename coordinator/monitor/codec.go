package monitor

import (
	"bufio"
	"encoding/gob"
	"io"
	"net/rpc"
	"sync/atomic"
)

// codec is net/rpc's gob server codec with one addition: every message but Hello is announced from the reading loop, where
// the order of arrival is still known. net/rpc does not export its own.
type codec struct {
	conn    io.ReadWriteCloser
	decoder *gob.Decoder
	encoder *gob.Encoder
	buffer  *bufio.Writer
	arrived func(message any)
	closed  atomic.Bool
}

var _ rpc.ServerCodec = (*codec)(nil)

func newCodec(conn io.ReadWriteCloser, arrived func(message any)) *codec {
	buffer := bufio.NewWriter(conn)
	return &codec{
		conn:    conn,
		decoder: gob.NewDecoder(bufio.NewReader(conn)),
		encoder: gob.NewEncoder(buffer),
		buffer:  buffer,
		arrived: arrived,
	}
}

func (c *codec) ReadRequestHeader(r *rpc.Request) error { return c.decoder.Decode(r) }

func (c *codec) ReadRequestBody(body any) error {
	if err := c.decoder.Decode(body); err != nil {
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
		// The stream is no longer in step; closing it ends the session, and with it every hold.
		_ = c.Close()
	}
	return err
}

func (c *codec) Close() error {
	if c.closed.Swap(true) {
		return nil // called by net/rpc at the end of the reading loop and by WriteResponse
	}
	return c.conn.Close()
}
