package main

import (
	"context"
	"errors"
	"fmt"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	autoscaling "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	defaults "k8s.io/kubernetes/pkg/apis/autoscaling/v2"
	"k8s.io/kubernetes/pkg/controller/podautoscaler"
)

const (
	namespace = "namespace"
	name      = "name"
)

var errRefused = errors.New("refused")

// flags are the flags of kube-controller-manager that steer the controller.
type flags struct {
	SyncPeriod             float64 `json:"syncPeriod"`
	DownscaleStabilization float64 `json:"downscaleStabilization"`
	Tolerance              float64 `json:"tolerance"`
	CPUInitialization      float64 `json:"cpuInitialization"`
	ReadinessDelay         float64 `json:"readinessDelay"`
}

// step is the input of one reconcile. A nil spec, specReplicas or pods means no change.
type step struct {
	Spec           *autoscaling.HorizontalPodAutoscalerSpec `json:"spec"`
	SpecReplicas   *int32                                   `json:"specReplicas"`   // somebody else scales
	StatusReplicas *int32                                   `json:"statusReplicas"` // nil: as many as the spec asks for
	Pods           *[]pod                                   `json:"pods"`
	Readings       map[string]reading                       `json:"readings"`
	FailReads      bool                                     `json:"failReads"`  // of the scale subresource
	FailWrites     bool                                     `json:"failWrites"` // of the scale subresource
}

// scenario is the life of one autoscaler, one step per reconcile.
type scenario struct {
	Flags flags  `json:"flags"`
	Steps []step `json:"steps"`
}

// decision is the controller's decision in one reconcile.
type decision struct {
	Replicas   int32                `json:"replicas"`         // of the scale subresource, after the reconcile
	Reason     string               `json:"reason,omitempty"` // of a rescale
	Conditions map[string][2]string `json:"conditions"`       // status and reason by type
	Metrics    []*current           `json:"metrics,omitempty"`
}

// current is a metric's value in the status; values are milli-units.
type current struct {
	Utilization  *int32 `json:"utilization,omitempty"`
	AverageValue *int64 `json:"averageValue,omitempty"`
	Value        *int64 `json:"value,omitempty"`
}

// stage is what surrounds the controller.
type stage struct {
	autoscalers hpaInformer
	pods        podInformer
	scales      target
	metrics     readings
	known       []pod
	log         logSink
}

// run plays the scenario in the time of a bubble. The first reconcile comes one sync period after the autoscaler
// is created; the inputs of each reconcile change half a period before it.
func (s scenario) run() ([]decision, error) {
	around := &stage{autoscalers: hpaInformer{newInformer()}, pods: podInformer{newInformer()}}
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.New(&around.log)))
	defer cancel()
	period := seconds(s.Flags.SyncPeriod)
	controller := podautoscaler.NewHorizontalController(
		ctx, noEvents{}, &around.scales, around.autoscalers, mapper{}, &around.metrics, around.autoscalers, around.pods,
		period, seconds(s.Flags.DownscaleStabilization), s.Flags.Tolerance,
		seconds(s.Flags.CPUInitialization), seconds(s.Flags.ReadinessDelay),
	)
	go controller.Run(ctx, 1)
	decisions := make([]decision, 0, len(s.Steps))
	for i, each := range s.Steps {
		if err := around.configure(each.Spec); err != nil {
			return nil, fmt.Errorf("step %d: %w", i, err)
		}
		time.Sleep(period / 2)
		if err := around.set(each, time.Now().Add(period/2)); err != nil {
			return nil, fmt.Errorf("step %d: %w", i, err)
		}
		time.Sleep(period / 2)
		synctest.Wait()
		if reads := around.scales.reads; reads != 1 && !each.FailWrites {
			return nil, fmt.Errorf("step %d: %d reconciles instead of one", i, reads)
		}
		decisions = append(decisions, around.decision())
	}
	return decisions, nil
}

// configure creates the autoscaler or replaces its spec, and tells the controller. A nil spec means no change.
func (s *stage) configure(spec *autoscaling.HorizontalPodAutoscalerSpec) error {
	old := s.autoscalers.read()
	switch {
	case spec == nil && old == nil:
		return errors.New("the first step has no spec")
	case spec == nil:
		return nil
	}
	made := complete(*spec)
	if old == nil {
		err := s.autoscalers.store.Add(made)
		s.autoscalers.handler.OnAdd(made, true)
		return err
	}
	made.Status = old.Status
	err := s.autoscalers.store.Update(made)
	s.autoscalers.handler.OnUpdate(old, made)
	return err
}

// set prepares the inputs of a reconcile at the moment now.
func (s *stage) set(inputs step, now time.Time) error {
	s.metrics, s.log = readings{inputs.Readings, now}, logSink{}
	if inputs.SpecReplicas != nil {
		s.scales.spec = *inputs.SpecReplicas
	}
	s.scales.status = s.scales.spec
	if inputs.StatusReplicas != nil {
		s.scales.status = *inputs.StatusReplicas
	}
	s.scales.failReads, s.scales.failWrites, s.scales.reads = inputs.FailReads, inputs.FailWrites, 0
	if inputs.Pods != nil {
		s.known = *inputs.Pods
	}
	objects := make([]any, len(s.known))
	for i, one := range s.known {
		objects[i] = one.object(namespace, now)
	}
	return s.pods.store.Replace(objects, "")
}

// decision returns the outcome of a reconcile.
func (s *stage) decision() decision {
	status := s.autoscalers.read().Status
	made := decision{Replicas: s.scales.spec, Reason: s.log.reason, Conditions: map[string][2]string{}}
	for _, one := range status.Conditions {
		made.Conditions[string(one.Type)] = [2]string{string(one.Status), one.Reason}
	}
	for _, one := range status.CurrentMetrics {
		made.Metrics = append(made.Metrics, currentValue(one))
	}
	return made
}

// complete returns an autoscaler with the API server's defaults.
func complete(spec autoscaling.HorizontalPodAutoscalerSpec) *autoscaling.HorizontalPodAutoscaler {
	made := &autoscaling.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Spec: *spec.DeepCopy(),
	}
	made.Spec.ScaleTargetRef = autoscaling.CrossVersionObjectReference{APIVersion: "group/v1", Kind: "Target", Name: name}
	defaults.SetDefaults_HorizontalPodAutoscaler(made)
	return made
}

// currentValue returns the value of a metric's status, or nil if the status is empty.
func currentValue(status autoscaling.MetricStatus) *current {
	var found autoscaling.MetricValueStatus
	switch {
	case status.Resource != nil:
		found = status.Resource.Current
	case status.ContainerResource != nil:
		found = status.ContainerResource.Current
	case status.Pods != nil:
		found = status.Pods.Current
	case status.Object != nil:
		found = status.Object.Current
	case status.External != nil:
		found = status.External.Current
	default:
		return nil
	}
	made := &current{Utilization: found.AverageUtilization}
	if found.AverageValue != nil {
		milli := found.AverageValue.MilliValue()
		made.AverageValue = &milli
	}
	if found.Value != nil {
		milli := found.Value.MilliValue()
		made.Value = &milli
	}
	return made
}
