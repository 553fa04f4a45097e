package main

import (
	"context"
	"errors"
	"time"

	autoscaling "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	metricsclient "k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
)

// reading is what a metrics API returns for one metric: samples by pod, or values.
type reading struct {
	Samples map[string]sample `json:"samples"`
	Values  []int64           `json:"values"`
}

// readings is a metrics client that returns fixed readings. A metric without a reading is an error.
// The key of a resource metric is "resource" or "resource/container", of other metrics their name.
type readings struct {
	byName map[string]reading
	now    time.Time // moment to which ages are relative
}

var errNoReading = errors.New("no metrics returned from the metrics API")

func (r *readings) find(name string) (reading, error) {
	found, known := r.byName[name]
	if !known {
		return reading{}, errNoReading
	}
	return found, nil
}

func (r *readings) perPod(name string) (metricsclient.PodMetricsInfo, time.Time, error) {
	found, err := r.find(name)
	if err != nil {
		return nil, time.Time{}, err
	}
	return podMetrics(found.Samples, r.now), r.now, nil
}

func (r *readings) GetResourceMetric(_ context.Context, resource v1.ResourceName, _ string, _ labels.Selector, container string) (metricsclient.PodMetricsInfo, time.Time, error) {
	name := string(resource)
	if container != "" {
		name += "/" + container
	}
	return r.perPod(name)
}

func (r *readings) GetRawMetric(name, _ string, _, _ labels.Selector) (metricsclient.PodMetricsInfo, time.Time, error) {
	return r.perPod(name)
}

func (r *readings) GetObjectMetric(name, _ string, _ *autoscaling.CrossVersionObjectReference, _ labels.Selector) (int64, time.Time, error) {
	found, err := r.find(name)
	if err != nil {
		return 0, time.Time{}, err
	}
	return found.Values[0], r.now, nil
}

func (r *readings) GetExternalMetric(name, _ string, _ labels.Selector) ([]int64, time.Time, error) {
	found, err := r.find(name)
	if err == nil && len(found.Values) == 0 {
		err = errNoReading // as the client of the real metrics API
	}
	return found.Values, r.now, err
}
