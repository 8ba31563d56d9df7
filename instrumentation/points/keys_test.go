package points

import "testing"

// Entries of caches and of releases are named after these texts, so they stay the same wherever the types are.
func TestKeysNameTypesOfPackageInstrumentation(t *testing.T) {
	for _, tc := range []struct {
		of   any
		want string
	}{
		{helper{"m", "d", "points.helper{"}, `instrumentation.helper{module:"m", dir:"d", template:"points.helper{"}`},
		{[]point{{module: "m", insert: insertion{enter: `points. "points."`}}},
			`[]instrumentation.point{instrumentation.point{module:"m", from:"", to:"", observes:"", file:"", ` +
				`receiver:"", function:"", insert:instrumentation.insertion{enter:"points. \"points.\"", field:"", ` +
				`wrap:"", replaces:"", do:"", body:"", result:""}}}`},
		{[]AnnotatedCall(nil), `[]instrumentation.AnnotatedCall(nil)`},
		{[]AnnotatedCall{}, `[]instrumentation.AnnotatedCall{}`},
		{[]AnnotatedCall{{Name: "n", Package: "p", Receiver: "*T", Function: "f"}}, `[]instrumentation.AnnotatedCall{` +
			`instrumentation.AnnotatedCall{Name:"n", Package:"p", Receiver:"*T", Function:"f"}}`},
	} {
		if got := keyOf(tc.of); got != tc.want {
			t.Errorf("got\n%s\nwant\n%s", got, tc.want)
		}
	}
}
