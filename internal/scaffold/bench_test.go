package scaffold

import (
	"testing"

	"github.com/trommel-dev/trommel/internal/testing/operators"
)

// BenchmarkInspect measures what init takes in the repositories of third-party operators.
func BenchmarkInspect(b *testing.B) {
	for _, name := range []string{
		"jobset", "lws", "mpi-operator", "mariadb-operator", "postgres-operator", "ot-redis-operator",
		"spotahome-redis-operator",
	} {
		b.Run(name, func(b *testing.B) {
			dir := operators.Unpack(b, name)
			b.ResetTimer()
			for b.Loop() {
				if _, err := Inspect(dir, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
