//go:build !linux

package faults

func machineMemory() (int64, error) {
	return 0, unsupported("only Linux lets one process limit the memory of another")
}

type processMemory struct{ pid int }

func (*processMemory) use() (*memoryUse, error) { return nil, nil }

func (*processMemory) set(uint64) error { return nil }

func (*processMemory) restore() {}
