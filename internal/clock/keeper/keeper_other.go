//go:build !linux || !(amd64 || arm64)

package keeper

import "time"

type keeper struct{}

// Start is not possible on this system.
func Start(string) (*Keeper, error) { return nil, ErrUnsupported }

// Run does nothing.
func (k *Keeper) Run() {}

// Rest does nothing.
func (k *Keeper) Rest() {}

// Expect does nothing.
func (k *Keeper) Expect(int) {}

// Gone does nothing.
func (k *Keeper) Gone(int) {}

// Has is always false.
func (k *Keeper) Has(int) bool { return false }

// Skew does nothing.
func (k *Keeper) Skew(int, time.Duration) {}

// Lull does nothing.
func (k *Keeper) Lull() {}

// Jump does nothing.
func (k *Keeper) Jump(time.Duration) {}

// Close does nothing.
func (k *Keeper) Close() {}

// State is empty.
func (k *Keeper) State() State { return State{} }
