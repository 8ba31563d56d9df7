// Command standin answers ZooKeeper clients at port 2181, for simulated pods. It stores nothing: each path exists, and
// each write succeeds.
package main

import (
	"encoding/binary"
	"io"
	"log"
	"net"

	_ "k8s.io/client-go/rest" // Trommel runs programs that use client-go
)

// Operations of the protocol, and the length of what describes a node.
const (
	opCreate, opExists, opGet, opSet, opPing, opClose = 1, 3, 4, 5, 11, -11

	statLength = 68
)

func main() {
	l, err := net.Listen("tcp", ":2181")
	if err != nil {
		log.Fatal(err)
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go serve(conn)
	}
}

func serve(conn net.Conn) {
	defer conn.Close()
	if _, err := read(conn); err != nil { // the request to connect
		return
	}
	hello := make([]byte, 4+4+8+4+16) // protocol, timeout, session, password
	binary.BigEndian.PutUint32(hello[4:], 4000)
	binary.BigEndian.PutUint64(hello[8:], 1)
	binary.BigEndian.PutUint32(hello[16:], 16)
	if write(conn, hello) != nil {
		return
	}
	for {
		request, err := read(conn)
		if err != nil || len(request) < 8 {
			return
		}
		body := request[8:]
		answer := append(request[:4:4], make([]byte, 8+4)...) // xid, zxid, error
		switch int32(binary.BigEndian.Uint32(request[4:])) {
		case opCreate: // the path
			answer = append(answer, body[:4+binary.BigEndian.Uint32(body)]...)
		case opGet: // no data, and the node
			answer = append(answer, make([]byte, 4+statLength)...)
		case opExists, opSet:
			answer = append(answer, make([]byte, statLength)...)
		case opPing:
		case opClose:
			_ = write(conn, answer)
			return
		default:
			return
		}
		if write(conn, answer) != nil {
			return
		}
	}
}

func read(conn net.Conn) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return nil, err
	}
	packet := make([]byte, binary.BigEndian.Uint32(length[:])&0xfffff)
	_, err := io.ReadFull(conn, packet)
	return packet, err
}

func write(conn net.Conn, packet []byte) error {
	_, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(packet))), packet...))
	return err
}
