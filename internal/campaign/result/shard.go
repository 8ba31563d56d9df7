package result

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
)

// Shard is one of several parts of a campaign that run apart from each other, for example on several machines. The zero
// value is the whole campaign.
type Shard struct {
	I  int `json:"i"` // from 1
	Of int `json:"of"`
}

// ParseShard reads "i/n"; "" is the whole campaign.
func ParseShard(text string) (Shard, error) {
	if text == "" {
		return Shard{}, nil
	}
	i, n, ok := strings.Cut(text, "/")
	var s Shard
	var errI, errN error
	s.I, errI = strconv.Atoi(i)
	s.Of, errN = strconv.Atoi(n)
	if !ok || errI != nil || errN != nil || s.I < 1 || s.I > s.Of {
		return Shard{}, fmt.Errorf("%q is not a shard such as 1/4 (the first of four)", text)
	}
	return s, nil
}

func (s Shard) String() string {
	if s.Of == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", s.I, s.Of)
}

// Has reports whether a plan is in the shard. It goes by what the plan does, and not by its number: another machine may
// have learned a baseline of its own, and may have a plan more.
func (s Shard) Has(content []byte) bool {
	if s.Of == 0 {
		return true
	}
	h := fnv.New64a()
	_, _ = h.Write(content) // it never fails
	return h.Sum64()%uint64(s.Of) == uint64(s.I-1)
}
