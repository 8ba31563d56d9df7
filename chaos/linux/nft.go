package linux

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// tableName is the name of an injection's tables in nftables.
func tableName(id string) string {
	return "trommel_" + strings.Map(func(r rune) rune {
		if r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '_'
	}, id)
}

// deleteTables deletes all tables of an injection, at once.
func deleteTables(ns *namespace, name string) error {
	c, err := nftables.New(nftables.WithNetNSFd(int(ns.NsHandle)))
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	if err := queueDeletion(c, name); err != nil {
		return err
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("delete nftables' table %s: %w", name, err)
	}
	return nil
}

// newTable adds to the connection's next batch that a new table replaces all tables of an injection.
func newTable(ns *namespace, name string) (*nftables.Conn, *nftables.Table, error) {
	c, err := nftables.New(nftables.WithNetNSFd(int(ns.NsHandle)))
	if err != nil {
		return nil, nil, fmt.Errorf("open nftables: %w", err)
	}
	if err := queueDeletion(c, name); err != nil {
		return nil, nil, err
	}
	return c, c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: name}), nil
}

// queueDeletion adds the deletion of an injection's tables to the next batch.
func queueDeletion(c *nftables.Conn, name string) error {
	tables, err := c.ListTables()
	if err != nil {
		return fmt.Errorf("list nftables' tables: %w", err)
	}
	for _, t := range tables {
		if t.Name == name {
			c.DelTable(t)
		}
	}
	return nil
}

// A chain's rules are lists of expressions. All of them use register 1.

// equals lets packets pass whose field, which was loaded before, has this value.
func equals(data ...byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data} }

// field loads a field of a packet.
func field(key expr.MetaKey) expr.Any { return &expr.Meta{Key: key, Register: 1} }

// set sets a field to a number of 32 bits.
func set(key expr.MetaKey, value uint32) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: binaryutil.NativeEndian.PutUint32(value)},
		&expr.Meta{Key: key, SourceRegister: true, Register: 1},
	}
}

// mark sets a bit of the packet's mark.
func mark(bit uint32) []expr.Any {
	return []expr.Any{
		field(expr.MetaKeyMARK),
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(^bit), Xor: binaryutil.NativeEndian.PutUint32(bit)},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1},
	}
}

// marked lets packets pass that have the bit in their mark.
func marked(bit uint32) []expr.Any {
	return []expr.Any{
		field(expr.MetaKeyMARK),
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(bit), Xor: binaryutil.NativeEndian.PutUint32(0)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(0)},
	}
}

// share lets this percentage of the packets pass.
func share(percent uint32) []expr.Any {
	return []expr.Any{
		&expr.Numgen{Register: 1, Type: unix.NFT_NG_RANDOM, Modulus: 100},
		// Compared as bytes: the number is in the machine's order.
		&expr.Byteorder{SourceRegister: 1, DestRegister: 1, Op: expr.ByteorderHton, Len: 4, Size: 4},
		&expr.Cmp{Op: expr.CmpOpLt, Register: 1, Data: binaryutil.BigEndian.PutUint32(percent)},
	}
}

// beyond lets packets pass that exceed a number of bytes per second.
func beyond(bytesPerSecond uint64) expr.Any {
	return &expr.Limit{Type: expr.LimitTypePktBytes, Rate: bytesPerSecond, Unit: expr.LimitTimeSecond, Over: true}
}

// interfaceName is the name of an interface as the kernel compares it.
func interfaceName(name string) []byte {
	return append([]byte(name), make([]byte, unix.IFNAMSIZ-len(name))...)
}

func verdict(kind expr.VerdictKind) expr.Any { return &expr.Verdict{Kind: kind} }

func jump(chain string) expr.Any { return &expr.Verdict{Kind: expr.VerdictGoto, Chain: chain} }

// address lets packets pass whose source or destination is in the prefix.
func address(prefix netip.Prefix, source bool) []expr.Any {
	prefix = prefix.Masked()
	ip := prefix.Addr().AsSlice()
	load := &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Len: uint32(len(ip))}
	family := byte(unix.NFPROTO_IPV4)
	switch {
	case prefix.Addr().Is4() && source:
		load.Offset = 12
	case prefix.Addr().Is4():
		load.Offset = 16
	case source:
		family, load.Offset = unix.NFPROTO_IPV6, 8
	default:
		family, load.Offset = unix.NFPROTO_IPV6, 24
	}
	return append([]expr.Any{field(expr.MetaKeyNFPROTO), equals(family), load}, within(prefix)...)
}

// within lets packets pass whose address, which was loaded before, is in the prefix.
func within(prefix netip.Prefix) []expr.Any {
	prefix = prefix.Masked()
	ip := prefix.Addr().AsSlice()
	var exprs []expr.Any
	if prefix.Bits() < len(ip)*8 {
		mask := make([]byte, len(ip))
		for bit := range prefix.Bits() {
			mask[bit/8] |= 0x80 >> (bit % 8)
		}
		exprs = append(exprs, &expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: uint32(len(ip)), Mask: mask,
			Xor: make([]byte, len(ip))})
	}
	return append(exprs, equals(ip...))
}

// protocol lets packets of a transport protocol pass.
func protocol(number byte) []expr.Any { return []expr.Any{field(expr.MetaKeyL4PROTO), equals(number)} }

// port lets packets pass whose source or destination port is this. The protocol must have been checked.
func port(number uint16, source bool) []expr.Any {
	offset := uint32(2)
	if source {
		offset = 0
	}
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 2},
		equals(binaryutil.BigEndian.PutUint16(number)...),
	}
}

// Directions of packets as the connection tracking sees them.
const (
	original byte = 0
	reply    byte = 1
)

// direction lets packets pass that go into a direction of their connection.
func direction(d byte) []expr.Any {
	return []expr.Any{&expr.Ct{Key: expr.CtKeyDIRECTION, Register: 1}, equals(d)}
}

// rule joins expressions.
func rule(parts ...any) []expr.Any {
	var exprs []expr.Any
	for _, p := range parts {
		switch p := p.(type) {
		case expr.Any:
			exprs = append(exprs, p)
		case []expr.Any:
			exprs = append(exprs, slices.Clone(p)...)
		}
	}
	return exprs
}

// addRules adds rules to a chain.
func addRules(c *nftables.Conn, chain *nftables.Chain, rules ...[]expr.Any) {
	for _, r := range rules {
		c.AddRule(&nftables.Rule{Table: chain.Table, Chain: chain, Exprs: r})
	}
}
