package runner

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/disk"
	"github.com/shirou/gopsutil/v4/host"
	"github.com/shirou/gopsutil/v4/mem"
	"github.com/shirou/gopsutil/v4/net"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/panics"
)

// systemSnapshot is what a heartbeat says about the machine: sizes in GiB and MiB, shares in percent. Values that
// cannot be read are zero.
type systemSnapshot struct {
	Timestamp   agl.Timestamp `json:"timestamp"`
	Host        string        `json:"host"`
	OS          string        `json:"os"`
	CPUName     string        `json:"cpu_name"`
	CPUCores    int           `json:"cpu_cores"`
	CPUThreads  int           `json:"cpu_threads"`
	CPUUsagePct float64       `json:"cpu_usage_pct"` // since the last snapshot
	MemUsedGB   float64       `json:"mem_used_gb"`
	MemTotalGB  float64       `json:"mem_total_gb"`
	MemPct      float64       `json:"mem_pct"`
	DiskUsedGB  float64       `json:"disk_used_gb"`
	DiskTotalGB float64       `json:"disk_total_gb"`
	DiskPct     float64       `json:"disk_pct"`
	BytesSentMB float64       `json:"bytes_sent_mb"` // since boot
	BytesRecvMB float64       `json:"bytes_recv_mb"`
}

// SystemSnapshot describes the machine in the form of the Python runner's heartbeats. It fails only if nothing
// can be read.
func SystemSnapshot(ctx context.Context) (jsontext.Value, error) {
	const mb, gb = 1 << 20, 1 << 30
	s := systemSnapshot{Timestamp: agl.TimestampOf(time.Now()), OS: runtime.GOOS, CPUThreads: runtime.NumCPU()}
	var errs []error
	note := func(err error) bool {
		if err != nil {
			errs = append(errs, err)
		}
		return err == nil
	}
	name, err := os.Hostname()
	if note(err) {
		s.Host = name
	}
	if name, err := platform(ctx); note(err) {
		s.OS = runtime.GOOS + " " + name
	}
	if info, err := cpu.InfoWithContext(ctx); note(err) && len(info) > 0 {
		s.CPUName = info[0].ModelName
	}
	if cores, err := cpu.CountsWithContext(ctx, false); note(err) {
		s.CPUCores = cores
	}
	if pct, err := cpu.PercentWithContext(ctx, 0, false); note(err) && len(pct) > 0 {
		s.CPUUsagePct = rounded(pct[0])
	}
	if m, err := mem.VirtualMemoryWithContext(ctx); note(err) {
		s.MemUsedGB, s.MemTotalGB, s.MemPct = rounded(float64(m.Used)/gb), rounded(float64(m.Total)/gb), rounded(m.UsedPercent)
	}
	if d, err := disk.UsageWithContext(ctx, rootDir()); note(err) {
		s.DiskUsedGB, s.DiskTotalGB, s.DiskPct = rounded(float64(d.Used)/gb), rounded(float64(d.Total)/gb), rounded(d.UsedPercent)
	}
	if n, err := net.IOCountersWithContext(ctx, false); note(err) && len(n) > 0 {
		s.BytesSentMB, s.BytesRecvMB = rounded(float64(n[0].BytesSent)/mb), rounded(float64(n[0].BytesRecv)/mb)
	}
	const probes = 8
	if len(errs) == probes {
		return nil, errors.Join(errs...)
	}
	return json.Marshal(s)
}

// platform returns the name and version of the operating system, such as "debian 12". On Linux it reads them itself,
// because gopsutil would start a program for that.
func platform(ctx context.Context) (string, error) {
	if runtime.GOOS != "linux" {
		name, _, version, err := host.PlatformInformationWithContext(ctx)
		return strings.TrimSpace(name + " " + version), err
	}
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", err
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(release)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			fields[name] = strings.Trim(value, `"'`)
		}
	}
	return strings.TrimSpace(fields["ID"] + " " + fields["VERSION_ID"]), nil
}

func rounded(f float64) float64 { return math.Round(f*100) / 100 }

func rootDir() string {
	if runtime.GOOS == "windows" {
		return `C:\`
	}
	return "/"
}

// snapshots shares one system snapshot among the workers of a process.
type snapshots struct {
	take   func(ctx context.Context) (jsontext.Value, error)
	maxAge time.Duration

	mu   sync.Mutex
	last jsontext.Value // nil before the first
	err  error          // of the last try
	at   time.Time      // of last
	next *nextSnapshot  // nil while none is taken
}

// nextSnapshot is a snapshot that is being taken.
type nextSnapshot struct {
	began time.Time
	done  chan struct{}
}

// snapshotWait is how long a heartbeat waits for a new snapshot. One that takes longer goes with a later heartbeat: without
// heartbeats the store would end the attempts.
const snapshotWait = 100 * time.Millisecond

// get returns the newest snapshot. The error says why there is no new one.
func (s *snapshots) get(ctx context.Context) (jsontext.Value, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil && time.Since(s.at) < s.maxAge {
		return s.last, nil
	}
	if s.next == nil {
		s.next = &nextSnapshot{time.Now(), make(chan struct{})}
		go s.renew(context.WithoutCancel(ctx), s.next) // nobody waits for it: a snapshot that hangs must not hold back the end of Run
	}
	next := s.next
	s.mu.Unlock()
	timer := time.NewTimer(snapshotWait)
	defer timer.Stop()
	select {
	case <-next.done:
	case <-timer.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	if took := time.Since(next.began); s.next == next && took > s.limit() {
		return nil, fmt.Errorf("it has not been taken within %s", took.Round(time.Second))
	}
	if s.err != nil {
		return nil, s.err
	}
	return s.last, nil
}

// limit is how long a snapshot may take.
func (s *snapshots) limit() time.Duration { return max(2*s.maxAge, time.Second) }

// renew takes a snapshot.
func (s *snapshots) renew(ctx context.Context, next *nextSnapshot) {
	ctx, cancel := context.WithTimeout(ctx, s.limit())
	defer cancel()
	var stats jsontext.Value
	err := panics.Catch(func() (err error) {
		stats, err = s.take(ctx)
		return err
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err = panics.Located(err); err == nil {
		s.last, s.at = stats, time.Now()
	}
	s.next = nil
	close(next.done)
}
