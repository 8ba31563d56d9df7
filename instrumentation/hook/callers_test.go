package hook

import (
	"runtime"
	"strings"
	"testing"
)

func TestOwnerOf(t *testing.T) {
	const module = "example.com/op"
	for _, tt := range []struct {
		function, file string
		want           ownership
	}{
		{"main.main", "example.com/op/main.go", owned},
		{"main.(*worker).run.func1", "example.com/op/cmd/main.go", owned},
		{"example.com/op/controller.(*Reconciler).Reconcile", "example.com/op/controller/r.go", owned},
		{"example.com/op.Setup", "example.com/op/setup.go", owned},
		{"example.com/operators/x.F", "example.com/operators@v1.0.0/x/f.go", shared},
		{"example.com/op/pkg/generated/clientset/versioned/typed/v1.(*sets).Update", "x.go", foreign},
		{"example.com/op/client/applyconfiguration/v1.F", "x.go", foreign},
		{"example.com/op/api/v1.(*Set).DeepCopy", "example.com/op/api/v1/zz_generated.deepcopy.go", foreign},
		{"k8s.io/client-go/rest.(*Request).Do", "k8s.io/client-go@v0.36.3/rest/request.go", foreign},
		{"sigs.k8s.io/controller-runtime/pkg/client.(*client).Update", "x.go", foreign},
		{"k8s.io/kubernetes/pkg/controller/statefulset.(*StatefulSetController).sync", "x.go", shared},
		{"net/http.(*Client).do", "net/http/client.go", foreign},
		{"runtime.goexit", "runtime/asm_amd64.s", foreign},
		{"gopkg.in/inf%2ev0.F", "gopkg.in/inf.v0@v0.9.1/dec.go", shared},
		{thisPackage + ".callers", "callers.go", foreign},
	} {
		if got := ownerOf(module, tt.function, tt.file); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.function, got, tt.want)
		}
	}
	// A program of Kubernetes' own is an operator, too.
	if got := ownerOf("sigs.k8s.io/jobset", "sigs.k8s.io/jobset/pkg/controllers.(*R).Reconcile", "x.go"); got != owned {
		t.Errorf("jobset: %d", got)
	}
	if got := ownerOf("", "main.main", "main.go"); got != foreign {
		t.Errorf("without a known module: %d", got)
	}
	if !strings.HasSuffix(thisPackage, "/hook") {
		t.Errorf("this package is %q", thisPackage)
	}
}

// A program counter has the same place each time it is asked for, also where functions are inlined.
func TestPlaceOf(t *testing.T) {
	pc := make([]uintptr, 1)
	runtime.Callers(1, pc)
	for range 2 {
		p := placeOf(pc[0])
		if p != placeOf(pc[0]) || p.owner != foreign {
			t.Errorf("%+v", p)
		}
	}
}

func BenchmarkCallers(b *testing.B) {
	var deep func(n int)
	deep = func(n int) {
		if n > 0 {
			deep(n - 1)
			return
		}
		for range b.N {
			callers()
		}
	}
	deep(30) // as deep as a write in a reconcile
}
