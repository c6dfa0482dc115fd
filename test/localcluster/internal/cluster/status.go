// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	certutil "k8s.io/client-go/util/cert"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/build"
)

// Status prints one line per component.
func (c *Cluster) Status(ctx context.Context) {
	if !c.state.exists() {
		c.Say("no cluster in %s", c.Dir)
		return
	}
	c.Say("%s: %s, kubeconfig %s", c.Dir, c.state.Settings, c.Kubeconfig())
	for _, path := range []string{build.TrainerModule, build.JobSetModule} {
		c.Say("%s %s", path, c.module(ctx, path).Version)
	}
	table := tabwriter.NewWriter(c.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "COMPONENT\tPID\tSTATE\tHEALTH\tPORTS\tLOG")
	for _, comp := range c.components() {
		fmt.Fprintln(table, c.statusRow(ctx, comp))
	}
	attempt.Succeed(table.Flush())
}

func (c *Cluster) statusRow(ctx context.Context, comp component) string {
	pid, state, health := "-", "not started", "-"
	if p := c.process(comp.name); p.PID != 0 {
		pid, state = fmt.Sprint(p.PID), "exited"
		if p.Alive() {
			if state, health = "running", "healthy"; c.healthy(ctx, comp) != nil {
				health = "unhealthy"
			}
		}
	}
	var ports []string
	for _, purpose := range comp.ports {
		ports = append(ports, fmt.Sprintf("%s=%d", purpose, c.port(comp.name, purpose)))
	}
	return strings.Join([]string{comp.name, pid, state, health, strings.Join(ports, ","), c.logFile(comp.name)}, "\t")
}

const (
	probeTimeout = 2 * time.Second
	probePause   = 50 * time.Millisecond
	// healthyWithin is how long a component may take. The slowest needs some seconds
	// on two cores; the rest is for a machine that is busy with something else.
	healthyWithin = 4 * time.Minute
)

func (c *Cluster) healthy(ctx context.Context, comp component) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return attempt.To(func() {
		tlsConfig := &tls.Config{RootCAs: attempt.Must(certutil.NewPool(c.path(authorityCertFile))), MinVersion: tls.VersionTLS12}
		client := http.Client{Transport: &http.Transport{TLSClientConfig: tlsConfig, DisableKeepAlives: true}}
		for _, p := range comp.probes {
			get(ctx, &client, p.scheme+"://"+c.address(comp.name, p.port)+p.path)
		}
	})
}

func get(ctx context.Context, client *http.Client, url string) {
	request := attempt.Must(http.NewRequestWithContext(ctx, http.MethodGet, url, nil))
	response := attempt.Must(client.Do(request))
	defer response.Body.Close() //nolint:errcheck // only read
	if response.StatusCode != http.StatusOK && request.URL.Path != "" {
		body, _ := io.ReadAll(io.LimitReader(response.Body, 300))
		attempt.Fail("%s answers %s: %s", url, response.Status, body)
	}
}

// waitHealthy polls until the component is healthy, and gives up as soon as its process has ended.
func (c *Cluster) waitHealthy(ctx context.Context, comp component) {
	var unhealthy error
	err := wait.PollUntilContextTimeout(ctx, probePause, healthyWithin, true, func(ctx context.Context) (bool, error) {
		unhealthy = c.healthy(ctx, comp)
		if unhealthy != nil && !c.process(comp.name).Alive() {
			return false, errors.New("it has ended")
		}
		return unhealthy == nil, nil
	})
	if err != nil {
		attempt.Fail("waiting until %s is healthy: %w: %v%s", comp.name, err, unhealthy, build.Tail(c.logFile(comp.name)))
	}
}

// The ports lie below those that the kernel gives to outgoing connections (32768 and
// up): from there it could take one of ours while a component is being restarted.
const (
	firstPort = 20000
	lastPort  = 32000
)

// chosen are the ports that the clusters of this process have, bound by now or not.
var chosen = struct {
	sync.Mutex
	ports map[int]bool
}{ports: map[int]bool{}}

// choosePorts finds a free port per name, one after the other. It starts anywhere, so that clusters of two
// processes that come up at the same time hardly race for the same ones; those of one process never do.
func choosePorts(names []string) map[string]int {
	chosen.Lock()
	defer chosen.Unlock()
	ports := map[string]int{}
	start := rand.IntN(lastPort - firstPort)
	for i := 0; i < lastPort-firstPort && len(ports) < len(names); i++ {
		port := firstPort + (start+i)%(lastPort-firstPort)
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil || listener.Close() != nil || chosen.ports[port] {
			continue
		}
		ports[names[len(ports)]], chosen.ports[port] = port, true
	}
	if len(ports) < len(names) {
		attempt.Fail("not %d free ports between %d and %d on 127.0.0.1", len(names), firstPort, lastPort)
	}
	return ports
}

// port returns a chosen port; asking for one that no component lists is a bug.
func (c *Cluster) port(component, purpose string) int {
	port, ok := c.state.Ports[component+"/"+purpose]
	if !ok {
		panic("component " + component + " lists no port " + purpose)
	}
	return port
}

func (c *Cluster) address(component, purpose string) string {
	return fmt.Sprintf("127.0.0.1:%d", c.port(component, purpose))
}
