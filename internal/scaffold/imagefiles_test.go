package scaffold

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestImageFiles(t *testing.T) {
	const builder = "FROM golang:1.26 AS builder\nWORKDIR /workspace\nCOPY go.mod go.sum ./\nCOPY . .\n" +
		"RUN go build -o manager \\\n  # of the controller\n  ./cmd\n" +
		"FROM gcr.io/distroless/static:nonroot\nWORKDIR /\nCOPY --from=builder /workspace/manager .\n"
	repository := fstest.MapFS{
		"go.mod": {}, "go.sum": {}, "cmd/main.go": {}, "LICENSE": {}, "config/crd/a.yaml": {}, "config/crd/b.yaml": {},
		"templates/a.tmpl": {}, "charts/db/Chart.yaml": {}, "manager/x.go": {}, "assets/embed.go": {},
		"build/entrypoint": {Mode: 0o755}, "build/settings.json": {}, "docker/only-here.txt": {}, "empty/.keep": {},
	}
	for _, tt := range []struct {
		name, text string
		want       []ImageFile
	}{
		{"nothing but the program", builder, nil},
		{"a directory", builder + "COPY config/crd /crds\n", []ImageFile{{"/crds", "config/crd"}}},
		{"of another stage", builder + "COPY --chown=65532:65532 --from=builder /workspace/config/crd/ /crds/\n",
			[]ImageFile{{"/crds", "config/crd"}}},
		{"of another image", builder + "COPY --from=docker.io/helm /workspace/config/crd /crds\n", nil},
		{"relative destinations", builder + "WORKDIR /app\nWORKDIR data\nCOPY templates templates\n" +
			"COPY build/settings.json .\n",
			[]ImageFile{{"/app/data/settings.json", "build/settings.json"}, {"/app/data/templates", "templates"}}},
		{"several sources", builder + "COPY build/settings.json LICENSE config/crd/a.yaml /etc/db/\n",
			[]ImageFile{{"/etc/db/a.yaml", "config/crd/a.yaml"}, {"/etc/db/settings.json", "build/settings.json"}}},
		{"as JSON", builder + `COPY ["config/crd", "/crds"]` + "\n", []ImageFile{{"/crds", "config/crd"}}},
		{"all files of a directory", builder + "COPY config/crd/*.yaml /crds/\n", []ImageFile{{"/crds", "config/crd"}}},
		{"what a directory has, at the top", builder + "COPY charts /\n", []ImageFile{{"/db", "charts/db"}}},
		{"beside the Dockerfile", builder + "COPY only-here.txt /etc/db/what\n",
			[]ImageFile{{"/etc/db/what", "docker/only-here.txt"}}},
		{"variables", "ARG ROOT=/opt/db\n" + builder + "ENV HOME=${ROOT}/home OTHER=1\n" +
			"COPY templates $HOME/templates\nCOPY templates ${UNKNOWN}/x\n",
			[]ImageFile{{"/opt/db/home/templates", "templates"}}},
		{"a later one on the same path", builder + "COPY charts /x\nCOPY templates /x\n",
			[]ImageFile{{"/x", "templates"}}},
		{"a stage on another", builder + "COPY templates /templates\nFROM 1\n",
			[]ImageFile{{"/templates", "templates"}}},
		{"no data", builder + "COPY . /src\nCOPY assets /assets\nCOPY build/entrypoint /entrypoint\nCOPY nowhere /x\n" +
			"COPY LICENSE /licenses/\nCOPY manager /manager\nCOPY cmd/main.go /x\nADD https://example.com/x /x\n", nil},
		{"paths of the system", builder + "COPY templates /tmp\nCOPY templates /usr/bin\n" +
			"COPY templates /etc/ssl/certs\nCOPY templates /etc\nCOPY templates /usr\n", nil},
		{"of another program", "FROM scratch\nCOPY templates /templates\nENTRYPOINT [\"/proxy\"]\n", nil},
		{"named by its entrypoint", "FROM scratch\nCOPY templates /templates\nENTRYPOINT [\"/db-operator\", \"run\"]\n",
			[]ImageFile{{"/templates", "templates"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			of := program{pkg: "./cmd/db-operator", path: "example.com/db/cmd/db-operator", binary: "manager"}
			d := readDockerfile(repository, "docker", tt.text)
			var got []ImageFile
			if final := d.runs(of); final != nil {
				got = d.useful(final, of)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
