package cel

import (
	"crypto/md5"  //nolint:gosec // to compare with what a controller has written, not to protect anything
	"crypto/sha1" //nolint:gosec // the same
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"net/netip"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
)

// functions are what conditions have besides CEL's own functions: CEL's extension libraries, of Kubernetes' the
// quantities and isIP, and hashes. docs/suite.md lists them.
func functions() cel.EnvOption {
	options := []cel.EnvOption{
		ext.Strings(), ext.Encoders(), ext.Math(), ext.Sets(), ext.Lists(), ext.TwoVarComprehensions(),
		quantities(), isIP,
	}
	for _, h := range hashes {
		options = append(options, h.function())
	}
	return together(options)
}

// together makes one option of several.
func together(options []cel.EnvOption) cel.EnvOption {
	return func(env *cel.Env) (*cel.Env, error) {
		for _, option := range options {
			var err error
			if env, err = option(env); err != nil {
				return nil, err
			}
		}
		return env, nil
	}
}

// isIP is Kubernetes' function: addresses with a zone and IPv4 addresses in the form of IPv6 do not count.
var isIP = cel.Function("isIP", cel.Overload("is_ip_string", []*cel.Type{cel.StringType}, cel.BoolType,
	cel.UnaryBinding(func(v ref.Val) ref.Val {
		text, _ := v.Value().(string)
		a, err := netip.ParseAddr(text)
		return types.Bool(err == nil && a.Zone() == "" && !a.Is4In6())
	})))

// hash is a function that gives the hash of a text or of bytes, in hexadecimal digits.
type hash struct {
	name string
	sum  func([]byte) []byte
}

var hashes = []hash{
	{"md5", func(b []byte) []byte { sum := md5.Sum(b); return sum[:] }},   //nolint:gosec // see the import
	{"sha1", func(b []byte) []byte { sum := sha1.Sum(b); return sum[:] }}, //nolint:gosec // see the import
	{"sha256", func(b []byte) []byte { sum := sha256.Sum256(b); return sum[:] }},
	{"sha512", func(b []byte) []byte { sum := sha512.Sum512(b); return sum[:] }},
}

func (h hash) function() cel.EnvOption {
	binding := cel.UnaryBinding(func(v ref.Val) ref.Val {
		switch v := v.(type) {
		case types.String:
			return types.String(hex.EncodeToString(h.sum([]byte(v))))
		case types.Bytes:
			return types.String(hex.EncodeToString(h.sum(v)))
		}
		return types.MaybeNoSuchOverloadErr(v)
	})
	return cel.Function(h.name,
		cel.Overload(h.name+"_string", []*cel.Type{cel.StringType}, cel.StringType, binding),
		cel.Overload(h.name+"_bytes", []*cel.Type{cel.BytesType}, cel.StringType, binding))
}

// bySize lets a function that reads all of a text cost as much as CEL's own, by the text's length: without that a
// call costs 1, however long the text is, and the limit of an evaluation limits nothing.
var bySize = cel.CostTracking(sizes{})

type sizes struct{}

// perByte is what CEL takes for reading a byte of a text: 0.1.
const perByte = 10

func (sizes) CallCost(function, _ string, args []ref.Val, _ ref.Val) *uint64 {
	read := false
	for _, h := range hashes {
		read = read || h.name == function
	}
	if !read && function != "base64.encode" && function != "base64.decode" || len(args) == 0 {
		return nil
	}
	var length int
	switch v := args[0].(type) {
	case types.String:
		length = len(v)
	case types.Bytes:
		length = len(v)
	}
	cost := 1 + uint64(length)/perByte
	return &cost
}
