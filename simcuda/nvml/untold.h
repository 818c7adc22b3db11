/* SPDX-License-Identifier: MIT */
/*
 * NVML's functions of a device, without `nvmlDevice`, that are not simulated: what a card
 * measures, reports about itself, or can be set to. Loggers call them again and again, and
 * expect "not supported" from many cards. A library that lacks a function looks to them like
 * another version.
 */
#ifndef RVL_SIMCUDA_NVML_UNTOLD_H
#define RVL_SIMCUDA_NVML_UNTOLD_H

/* clang-format off */
#define RVLI_NVML_UNTOLD(X) \
    X(ClearAccountingPids) X(ClearCpuAffinity) X(ClearEccErrorCounts) X(ClearFieldValues) \
    X(CreateGpuInstance) X(CreateGpuInstanceWithPlacement) X(FreezeNvLinkUtilizationCounter) \
    X(GetAPIRestriction) X(GetAccountingBufferSize) X(GetAccountingMode) X(GetAccountingPids) \
    X(GetAccountingStats) X(GetAccountingStats_v2) X(GetActiveVgpus) \
    X(GetAdaptiveClockInfoStatus) X(GetAdaptiveTgpModeInfo_v1) X(GetAddressingMode) \
    X(GetApplicationsClock) X(GetArchitecture) X(GetAttributes_v2) \
    X(GetAutoBoostedClocksEnabled) X(GetBAR1MemoryInfo) X(GetBBXTimeData_v1) \
    X(GetBankRemapperStatus_v1) X(GetBoardId) X(GetBoardPartNumber) X(GetBrand) \
    X(GetBridgeChipInfo) X(GetBusType) X(GetC2cModeInfoV) X(GetCapabilities) X(GetClkMonStatus) \
    X(GetClock) X(GetClockInfo) X(GetClockOffsets) X(GetComputeInstanceId) X(GetComputeMode) \
    X(GetConfComputeGpuAttestationReport) X(GetConfComputeGpuCertificate) \
    X(GetConfComputeMemSizeInfo) X(GetConfComputeProtectedMemoryUsage) X(GetCoolerInfo) \
    X(GetCpuAffinity) X(GetCpuAffinityWithinScope) X(GetCreatableVgpus) \
    X(GetCurrPcieLinkGeneration) X(GetCurrPcieLinkWidth) X(GetCurrentClockFreqs) \
    X(GetCurrentClocksEventReasons) X(GetCurrentClocksThrottleReasons) X(GetDecoderUtilization) \
    X(GetDefaultApplicationsClock) X(GetDefaultEccMode) X(GetDetailedEccErrors) \
    X(GetDisplayActive) X(GetDisplayMode) X(GetDramEncryptionMode) X(GetDriverModel) \
    X(GetDriverModel_v2) X(GetDynamicPstatesInfo) X(GetEccMode) X(GetEncoderCapacity) \
    X(GetEncoderSessions) X(GetEncoderStats) X(GetEncoderUtilization) X(GetEnforcedPowerLimit) \
    X(GetFBCSessions) X(GetFBCStats) X(GetFanControlPolicy_v2) X(GetFanSpeed) X(GetFanSpeedRPM) \
    X(GetFanSpeed_v2) X(GetFieldValues) X(GetGpcClkMinMaxVfOffset) X(GetGpcClkVfOffset) \
    X(GetGpuFabricInfo) X(GetGpuFabricInfoV) X(GetGpuFabricInfo_v4) X(GetGpuInstanceById) \
    X(GetGpuInstanceId) X(GetGpuInstancePossiblePlacements_v2) X(GetGpuInstanceProfileInfo) \
    X(GetGpuInstanceProfileInfoByIdV) X(GetGpuInstanceProfileInfoV) \
    X(GetGpuInstanceRemainingCapacity) X(GetGpuInstances) X(GetGpuMaxPcieLinkGeneration) \
    X(GetGpuOperationMode) X(GetGridLicensableFeatures_v4) X(GetGspFirmwareMode) \
    X(GetGspFirmwareVersion) X(GetHostVgpuMode) X(GetHostname_v1) \
    X(GetInforomConfigurationChecksum) X(GetInforomImageVersion) X(GetInforomVersion) \
    X(GetIrqNum) X(GetJpgUtilization) X(GetLastBBXFlushTime) X(GetMarginTemperature) \
    X(GetMaxClockInfo) X(GetMaxCustomerBoostClock) X(GetMaxMigDeviceCount) \
    X(GetMaxPcieLinkGeneration) X(GetMaxPcieLinkWidth) X(GetMemClkMinMaxVfOffset) \
    X(GetMemClkVfOffset) X(GetMemoryAffinity) X(GetMemoryBusWidth) X(GetMemoryErrorCounter) \
    X(GetMemoryLimits_v1) X(GetMigDeviceHandleByIndex) X(GetMigMode) X(GetMinMaxClockOfPState) \
    X(GetMinMaxFanSpeed) X(GetModuleId) X(GetMultiGpuBoard) X(GetNumFans) X(GetNumGpuCores) \
    X(GetNumaNodeId) X(GetNvLinkCapability) X(GetNvLinkErrorCounter) X(GetNvLinkInfo) \
    X(GetNvLinkState) X(GetNvLinkTelemetrySamples_v1) X(GetNvLinkUtilizationControl) \
    X(GetNvLinkUtilizationCounter) X(GetNvLinkVersion) X(GetNvlinkBwMode) \
    X(GetNvlinkSupportedBwModes) X(GetOfaUtilization) X(GetPciInfo) X(GetPciInfoExt) \
    X(GetPciInfo_v2) X(GetPciInfo_v3) X(GetPcieLinkMaxSpeed) X(GetPcieReplayCounter) \
    X(GetPcieSpeed) X(GetPcieThroughput) X(GetPdi) X(GetPerformanceModes) X(GetPerformanceState) \
    X(GetPersistenceMode) X(GetPgpuMetadataString) X(GetPlatformInfo) \
    X(GetPowerManagementDefaultLimit) X(GetPowerManagementLimit) \
    X(GetPowerManagementLimitConstraints) X(GetPowerManagementMode) X(GetPowerMizerMode_v1) \
    X(GetPowerSource) X(GetPowerState) X(GetPowerUsage) X(GetProcessUtilization) \
    X(GetProcessesUtilizationInfo) X(GetRemappedRows) X(GetRemappedRows_v2) X(GetRepairStatus) \
    X(GetRetiredPages) X(GetRetiredPagesPendingStatus) X(GetRetiredPages_v2) \
    X(GetRowRemapperHistogram) X(GetRunningProcessDetailList) X(GetSamples) X(GetSerial) \
    X(GetSramEccErrorStatus) X(GetSramUniqueUncorrectedEccErrorCounts) \
    X(GetSupportedClocksEventReasons) X(GetSupportedClocksThrottleReasons) \
    X(GetSupportedEventTypes) X(GetSupportedGraphicsClocks) X(GetSupportedMemoryClocks) \
    X(GetSupportedPerformanceStates) X(GetSupportedVgpus) X(GetTargetFanSpeed) X(GetTemperature) \
    X(GetTemperatureThreshold) X(GetTemperatureV) X(GetThermalSettings) \
    X(GetTopologyCommonAncestor) X(GetTopologyNearestGpus) X(GetTotalEccErrors) \
    X(GetTotalEnergyConsumption) X(GetUnrepairableMemoryFlag_v1) X(GetUtilizationRates) \
    X(GetVbiosVersion) X(GetVgpuCapabilities) X(GetVgpuHeterogeneousMode) \
    X(GetVgpuInstancesUtilizationInfo) X(GetVgpuMetadata) X(GetVgpuProcessUtilization) \
    X(GetVgpuProcessesUtilizationInfo) X(GetVgpuSchedulerCapabilities) X(GetVgpuSchedulerLog) \
    X(GetVgpuSchedulerLog_v2) X(GetVgpuSchedulerState) X(GetVgpuSchedulerState_v2) \
    X(GetVgpuTypeCreatablePlacements) X(GetVgpuTypeSupportedPlacements) X(GetVgpuUtilization) \
    X(GetViolationStatus) X(GetVirtualizationMode) X(OnSameBoard) X(PerfMetricsGetSamples_v1) \
    X(PowerSmoothingActivatePresetProfile) X(PowerSmoothingSetState) \
    X(PowerSmoothingUpdatePresetProfileParam) X(ReadPRMCounters_v1) X(ReadWritePRM_v1) \
    X(RegisterEvents) X(ResetApplicationsClocks) X(ResetGpuLockedClocks) \
    X(ResetMemoryLockedClocks) X(ResetNvLinkErrorCounters) X(ResetNvLinkUtilizationCounter) \
    X(SetAPIRestriction) X(SetAccountingMode) X(SetAdaptiveTgpMode_v1) X(SetApplicationsClocks) \
    X(SetAutoBoostedClocksEnabled) X(SetClockOffsets) X(SetComputeMode) \
    X(SetConfComputeUnprotectedMemSize) X(SetCpuAffinity) X(SetDefaultAutoBoostedClocksEnabled) \
    X(SetDefaultFanSpeed_v2) X(SetDramEncryptionMode) X(SetDriverModel) X(SetEccMode) \
    X(SetFanControlPolicy) X(SetFanSpeed_v2) X(SetGpcClkVfOffset) X(SetGpuLockedClocks) \
    X(SetGpuOperationMode) X(SetHostname_v1) X(SetMemClkVfOffset) X(SetMemoryLimits_v1) \
    X(SetMemoryLockedClocks) X(SetMigMode) X(SetNvLinkDeviceLowPowerThreshold) \
    X(SetNvLinkUtilizationControl) X(SetNvlinkBwMode) X(SetNvlinkBwModeAsync_v1) \
    X(SetPersistenceMode) X(SetPowerManagementLimit) X(SetPowerManagementLimit_v2) \
    X(SetPowerMizerMode_v1) X(SetRusdSettings_v1) X(SetTemperatureThreshold) \
    X(SetVgpuCapabilities) X(SetVgpuHeterogeneousMode) X(SetVgpuSchedulerState) \
    X(SetVgpuSchedulerState_v2) X(SetVirtualizationMode) X(ValidateInforom) \
    X(VgpuForceGspUnload) X(WorkloadPowerProfileClearRequestedProfiles) \
    X(WorkloadPowerProfileGetCurrentProfiles) X(WorkloadPowerProfileGetProfilesInfo) \
    X(WorkloadPowerProfileSetRequestedProfiles) X(WorkloadPowerProfileUpdateProfiles_v1)
/* clang-format on */

#endif
